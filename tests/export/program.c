/* A program in C that calls two kernels: values, and gradients of which some are summed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "three.h"

#define ROWS 37
#define COLUMNS 21

int main(void) {
  static float x[ROWS][COLUMNS], cotangent[ROWS][COLUMNS], value[ROWS][COLUMNS], again[ROWS][COLUMNS], dx[ROWS][COLUMNS];
  float a[COLUMNS], b[COLUMNS], da[COLUMNS], db[COLUMNS], planes[ROWS], dplanes[ROWS], one = 2.0f, done;
  const int64_t matrix[] = {ROWS, COLUMNS}, row[] = {COLUMNS}, column[] = {ROWS, 1};
  const mixad_array ax = {x, matrix, 0}, aa = {a, row, 0}, ab = {b, row, 0}, ac = {cotangent, matrix, 0};
  const mixad_array av = {value, matrix, 0}, adx = {dx, matrix, 0}, ada = {da, row, 0}, adb = {db, row, 0};
  const mixad_array ap = {planes, column, 0}, adp = {dplanes, column, 0}, ao = {&one, 0, 0}, ado = {&done, 0, 0};
  const mixad_array aagain = {again, matrix, 0};
  for (int j = 0; j < COLUMNS; j++) a[j] = 0.5f + (float)j / COLUMNS, b[j] = 0.25f;
  for (int i = 0; i < ROWS; i++) {
    planes[i] = (float)i;
    for (int j = 0; j < COLUMNS; j++) x[i][j] = (float)(i - j) / ROWS, cotangent[i][j] = (float)(i % 3);
  }
  if (model_value(&ax, &aa, &ab, &av) != MIXAD_OK) return 1;
  if (model_pullback(&ax, &aa, &ab, &ac, &aagain, &adx, &ada, &adb) != MIXAD_OK) return 2;
  if (memcmp(value, again, sizeof value)) return 3;
  for (int j = 0; j < COLUMNS; j++) printf("%.9g %.9g\n", (double)da[j], (double)db[j]);
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) {
      const float v = x[i][j] > b[j] ? tanhf(x[i][j] * a[j] + b[j]) * 3.0f : expf(-x[i][j] * x[i][j]) * a[j];
      if (!(fabsf(value[i][j] - v) <= 1e-5f)) return 4;
    }
  if (three_pullback(&ax, &aa, &ap, &ao, &ac, &aagain, &adx, &ada, &adp, &ado) != MIXAD_OK) return 5;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++)
      if (!(fabsf(again[i][j] - (x[i][j] * a[j] * planes[i] + one * a[j])) <= 1e-4f)) return 6;
  float sum = 0;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) sum += cotangent[i][j] * a[j];
  if (!(fabsf(done - sum) <= 1e-3f * fabsf(sum))) return 7;
  const int64_t wrong[] = {COLUMNS, ROWS};
  const mixad_array mismatched = {x, wrong, 0};
  return model_value(&mismatched, &aa, &ab, &av) == MIXAD_SHAPE ? 0 : 8;
}
