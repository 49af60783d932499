// A program in C++ whose threads share out the tiles of a call.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "model.h"

int main() {
  const int64_t matrix[] = {3000, 300}, row[] = {300};
  std::vector<float> x(900000), cotangent(900000, 1.0f), value(900000), dx(900000), a(300), b(300, 0.25f), da(300), db(300);
  for (size_t k = 0; k < x.size(); k++) x[k] = float(k % 1013) / 1013 - 0.5f;
  for (size_t j = 0; j < a.size(); j++) a[j] = 0.5f + float(j) / 300;
  const auto of = [](std::vector<float> &v, const int64_t *extents) { return mixad_array{v.data(), extents, nullptr}; };
  const mixad_array ax = of(x, matrix), aa = of(a, row), ab = of(b, row), ac = of(cotangent, matrix);
  const mixad_array av = of(value, matrix), adx = of(dx, matrix), ada = of(da, row), adb = of(db, row);
  if (model_pullback(&ax, &aa, &ab, &ac, &av, &adx, &ada, &adb) != MIXAD_OK) return 1;
  const auto of_one = da, rows_of_one = dx;
  std::fill(da.begin(), da.end(), 7.0f);

  model_plan plan;
  if (model_pullback_bind(&plan, &ax, &aa, &ab, &ac, &av, &adx, &ada, &adb) != MIXAD_OK) return 2;
  if (plan.tiles < 8) return 3;
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; k++)
    threads.emplace_back([&] {
      for (int64_t tile; (tile = next.fetch_add(3)) < plan.tiles;) model_run(&plan, tile, tile + 3);
    });
  for (auto &thread : threads) thread.join();
  if (model_finish(&plan) != MIXAD_OK) return 4;
  return da == of_one && dx == rows_of_one ? 0 : 5;
}
