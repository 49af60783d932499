/* Kernels run in the threads that call them; sums of tiles are added up by trees, as mixad.backends.cpu.results has
   it. */

/* Where the kernel leaves an output that is not the caller's array as it is. */
static int64_t bytes_of(const plan_t *plan, int k) {
  const left_t *left = &plan->left[k];
  return left->memory * (left->is_wide ? 8 : plan->function->result[k].size);
}

static int begin(const function_t *f, plan_t *plan, const mixad_array *const *arrays, const int64_t *numbers,
                 const mixad_array *const *outputs) {
  const int status = bind(f, plan, &CPU_TILING, 1, arrays, numbers, outputs);
  int64_t bytes = LINE;
  if (status || !plan->tiles) return status;
  plan->words[W_STOP] = (int64_t)(intptr_t)&plan->stop;
  plan->words[W_OUTSIDE] = (int64_t)(intptr_t)&plan->outside;
  for (int k = 0; k < f->outputs; k++) {
    left_t *left = &plan->left[k];
    if (left->data && !left->is_wide && is_in_place(plan, &f->result[k], left)) left->memory = 0;
    bytes += up(bytes_of(plan, k), LINE) * LINE;
  }
  if (bytes > LINE && !(plan->memory = malloc((size_t)bytes))) return MIXAD_MEMORY;
  int64_t at = up((int64_t)(intptr_t)plan->memory, LINE) * LINE;
  for (int k = 0; k < f->outputs; k++) {
    left_t *left = &plan->left[k];
    const int64_t own = up(bytes_of(plan, k), LINE) * LINE;
    if (own) left->memory = at;
    plan->words[plan->variant->at[f->params + k]] = own ? at : left->data;
    at += own;
  }
  return 0;
}

static void run(const plan_t *plan, int64_t first, int64_t last) {
  last = least(last, plan->tiles);
  if (first < last) plan->variant->kernel(plan->words, first, last);
}

/* Go on to the next place of nested loops; whether there is one. */
static int next(int n, const int64_t *extent, const int64_t *step, int64_t *index, int64_t *at) {
  for (int i = n - 1; i >= 0; i--) {
    *at += step[i];
    if (++index[i] < extent[i]) return 1;
    *at -= step[i] * extent[i], index[i] = 0;
  }
  return 0;
}

static void add_up(left_t *left) {
  double *sums = (double *)(intptr_t)left->memory;
  for (int d = 0; d < left->dims; d++) {
    if (!left->summed[d]) continue;
    const int64_t length = left->step[d];
    int64_t index[2 * AXES] = {0}, at = 0;
    do {
      double *own = sums + at;
      for (int64_t count = left->extent[d]; count > 1; count -= count / 2) {
        const double *others = own + (count - count / 2) * length;
        for (int64_t j = 0; j < count / 2 * length; j++) own[j] += others[j];
      }
    } while (next(d, left->extent, left->step, index, &at));
    left->extent[d] = 1;
  }
}

/* Write an output where the caller wants it. */
static void put(const plan_t *plan, int k) {
  const left_t *left = &plan->left[k];
  const result_t *r = &plan->function->result[k];
  const int rank = plan->function->rank, size = r->size;
  const char *memory = (const char *)(intptr_t)left->memory;
  int64_t from[2 * AXES] = {0}, to[AXES] = {0}, extent[AXES], step[AXES], source = 0, target = left->data;
  for (int i = 0; i < rank; i++) {
    const int a = (int)plan->order[i];
    extent[i] = r->own >> a & 1 ? plan->shape[a] : 1, step[i] = left->stride[a];
    if (extent[i] == 0) return;
  }
  for (;;) {
    char *element = (char *)(intptr_t)target;
    if (!plan->tiles) {
      memset(element, 0, (size_t)size);
    } else if (!left->is_wide) {
      memcpy(element, memory + source * size, (size_t)size);
    } else if (size == 8) {
      memcpy(element, memory + source * 8, 8);
    } else {
      const float rounded = (float)((const double *)memory)[source];
      memcpy(element, &rounded, 4);
    }
    if (!next(rank, extent, step, to, &target)) return;
    next(left->dims, left->extent, left->step, from, &source);
  }
}

static int finish(plan_t *plan) {
  for (int k = 0; k < plan->function->outputs; k++) {
    left_t *left = &plan->left[k];
    if (plan->tiles && left->is_wide && left->memory) add_up(left);
    if (left->data && (left->memory || !plan->tiles)) put(plan, k);
  }
  free(plan->memory);
  plan->memory = 0;
  return plan->outside ? MIXAD_INDEX : plan->stop ? MIXAD_STOPPED : 0;
}
