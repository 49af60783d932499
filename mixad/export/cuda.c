/* Kernels run on a device, pass by pass; what tiles have left of sums is added up there, as mixad.backends.cuda
   does it. */

static int ok(CUresult result) { return result == CUDA_SUCCESS ? 0 : MIXAD_CUDA; }

static int64_t power_of_two(int64_t least_) {
  int64_t found = 1;
  while (found < least_) found *= 2;
  return found;
}

static int load(CUfunction *functions, CUmodule module, int32_t *processors) {
  CUdevice device;
  for (int k = 0; k < ENTRIES; k++)
    if (cuModuleGetFunction(&functions[k], module, ENTRY_NAMES[k]) != CUDA_SUCCESS) return MIXAD_CUDA;
  if (cuCtxGetDevice(&device) != CUDA_SUCCESS) return MIXAD_CUDA;
  int count = 0;
  const int status = ok(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  *processors = count;
  return status;
}

static int begin(const function_t *f, plan_t *plan, int32_t processors, const mixad_array *const *arrays,
                 const int64_t *numbers, const mixad_array *const *outputs) {
  const int64_t blocks = (int64_t)BLOCKS_EACH * processors;
  const tiling_t tiling = {blocks, LEAST_RUN, LEAST};
  const int status = bind(f, plan, &tiling, 0, arrays, numbers, outputs);
  if (status) return status;
  const int64_t rows = f->rank > 1 ? product(plan->words + W_OUTER, f->rank - 1) : 1;
  if (most(most(plan->row + BLOCK, rows + plan->rows), plan->tiles) >= INT32_MAX) return MIXAD_SHAPE;
  plan->bytes = LINE;
  for (int p = 0; p < f->params; p++) /* neighbours are loaded together, and stored */
    if (plan->variant->steps[p] == UNIT && plan->words[plan->variant->at[p]] % (NEIGHBOURS * f->argument[f->param[p]].size))
      return MIXAD_LAYOUT;
  for (int k = 0; k < f->outputs; k++) {
    left_t *left = &plan->left[k];
    if (!left->data) return MIXAD_SHAPE;
    if (!is_in_place(plan, &f->result[k], left)) return MIXAD_LAYOUT;
    if (plan->variant->combine[k] == STORED && left->data % (NEIGHBOURS * f->result[k].size)) return MIXAD_LAYOUT;
    int is_left = 0;
    for (int d = 0; d < left->dims; d++) is_left |= left->summed[d] && left->extent[d] > 1;
    left->memory = is_left ? up(left->memory * f->result[k].size, LINE) * LINE : 0;
    plan->bytes += 2 * left->memory; /* what tiles leave, and what a level of sums leaves of it */
  }
  return 0;
}

static int launch(CUfunction function, int64_t blocks, int64_t across, int64_t along, CUstream stream, void *words) {
  void *arguments[] = {words};
  return ok(cuLaunchKernel(function, (unsigned)least(blocks, INT32_MAX), 1, 1, (unsigned)across, (unsigned)along, 1, 0,
                           stream, arguments, 0));
}

static int add_up(const CUfunction *functions, const plan_t *plan, int k, int64_t memory, CUstream stream) {
  const left_t *left = &plan->left[k];
  const int size = plan->function->result[k].size;
  int64_t extent[2 * AXES], from = memory, to = memory + left->memory;
  int last = 0;
  for (int d = 0; d < left->dims; d++) {
    extent[d] = left->extent[d];
    if (left->summed[d] && extent[d] > 1) last = d;
  }
  for (int d = 0; d <= last; d++) {
    if (!left->summed[d]) continue;
    const int64_t outer = product(extent, d), inner = product(extent + d + 1, left->dims - d - 1);
    while (extent[d] > 1) {
      const int64_t count = extent[d];
      const int64_t along = inner > 1 ? THREADS / least(WARP, power_of_two(inner))
                                      : least(THREADS, power_of_two(up(count, VALUES_EACH)));
      const int64_t across = THREADS / along, run = along * VALUES_PER_THREAD, runs = up(count, run);
      const int64_t target = d == last && runs == 1 ? left->data : to;
      int64_t words[7] = {target, from, outer, count, inner, run, runs};
      const int status = launch(functions[size == 8 ? SUM_DOUBLE : SUM_FLOAT], up(outer * inner, across) * runs, across,
                                along, stream, words);
      if (status) return status;
      to = from, from = target, extent[d] = runs;
    }
  }
  return 0;
}

static int run(const CUfunction *functions, plan_t *plan, CUstream stream, CUdeviceptr memory) {
  const function_t *f = plan->function;
  int64_t at = (int64_t)memory + LINE;
  plan->words[W_OUTSIDE] = (int64_t)memory;
  if (cuMemsetD32Async(memory, 0, 1, stream) != CUDA_SUCCESS) return MIXAD_CUDA;
  for (int k = 0; k < f->outputs; at += 2 * plan->left[k++].memory) {
    plan->words[plan->variant->at[f->params + k]] = plan->left[k].memory ? at : plan->left[k].data;
    if (plan->tiles) continue;
    int64_t elements = 1;
    for (int a = 0; a < f->rank; a++)
      if (f->result[k].own >> a & 1) elements *= plan->shape[a];
    const size_t bytes = (size_t)(elements * f->result[k].size);
    if (bytes && cuMemsetD8Async((CUdeviceptr)plan->left[k].data, 0, bytes, stream) != CUDA_SUCCESS) return MIXAD_CUDA;
  }
  if (!plan->tiles) return 0;
  const int64_t along = least(THREADS, power_of_two(up(plan->row, NEIGHBOURS)));
  plan->words[plan->variant->at[f->params + f->outputs + 1]] = plan->tiles;
  for (int pass = 0; pass < f->passes; pass++) {
    const CUfunction own = functions[plan->variant->kernel + pass];
    const int status = launch(own, plan->tiles, along, THREADS / along, stream, plan->words);
    if (status) return status;
  }
  at = (int64_t)memory + LINE;
  for (int k = 0; k < f->outputs; at += 2 * plan->left[k++].memory) {
    const int status = plan->left[k].memory ? add_up(functions, plan, k, at, stream) : 0;
    if (status) return status;
  }
  return 0;
}
