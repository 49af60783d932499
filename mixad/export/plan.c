/* The loop nest of a call, from extents and strides: what mixad.kernel's nest, folding, tiling and binding do in
   Python, rule by rule, so that sums have the bits that they have there. Constants come from these modules. */

#define LANE 0
#define INDEXED 1
#define NUMBER 2
#define CONSTANT 3

typedef struct {
  int kind, rank, size;
  uint64_t own;            /* axes of the broadcast shape along which it moves */
  int64_t bits;            /* of a constant */
  const int64_t *extents;  /* which it must have; none: any */
  const int64_t *strides;
} argument_t;

typedef struct {
  int rank, size;
  uint64_t own;
} result_t;

typedef struct {
  uint64_t params;  /* what statements vary with */
  int64_t cost;
} cost_t;

enum { STORED, COLUMNS, ROW, TILE, WIDE };  /* what a kernel does with a result */
enum { ZERO, UNIT, ANY, BY_TILE, BY_ROW, BY_COLUMN };  /* how it reads an argument: the last three copy it */

typedef struct {
  kernel_t kernel;
  int folded, is_split;
  const uint8_t *combine;    /* of each output */
  const uint64_t *segments;  /* of each output: axes of a folded row that are summed in every row */
  const uint8_t *steps;      /* of each param */
  const int16_t *at;         /* words of params, then of outputs; of the folded axes */
} variant_t;

typedef struct {
  int rank, arguments, params, outputs, costs, variants, passes, sums;
  const argument_t *argument;
  const int16_t *param;  /* which argument each param of the kernel is */
  const result_t *result;
  const cost_t *cost;
  const variant_t *variant;
} function_t;

typedef struct {  /* how finely sums are cut: mixad.kernel.tiling.Tiling */
  int64_t tiles, least_run, least;
} tiling_t;

static const tiling_t CPU_TILING = CPU_TILING_IS;

typedef struct {  /* axes outermost first; for each the strides of params, and which outputs sum it */
  int n;
  int64_t extent[AXES], stride[AXES][PARAMS];
  uint64_t summed[AXES];
  int order[AXES];
} nest_t;

typedef struct {
  int axes, is_split;
  int64_t axis[AXES], length, copied[PARAMS][AXES];
  uint8_t copies[PARAMS];
  uint64_t segments[OUTPUTS], columns[OUTPUTS];
  nest_t loops;
} fold_t;

typedef struct {  /* what is left of an output, and where it goes */
  int64_t data, stride[AXES], memory, is_wide, dims;
  int64_t extent[2 * AXES], step[2 * AXES], summed[2 * AXES];
} left_t;

typedef struct {
  PLAN_HEAD
  const function_t *function;
  const variant_t *variant;
  void *memory;
  int64_t shape[AXES], order[AXES], rows, row;
  left_t left[OUTPUTS];
  int64_t words[WORDS];
} plan_t;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t product(const int64_t *extent, int n) {
  int64_t found = 1;
  for (int i = 0; i < n; i++) found *= extent[i];
  return found;
}

/* -- mixad.kernel.nest -- */

static int is_lane(const function_t *f, int p) { return f->argument[f->param[p]].kind == LANE; }

static void nest_over(const function_t *f, const int64_t *shape, const nest_t *walked, const int *order, nest_t *nest) {
  nest->n = 0;
  memcpy(nest->order, order, sizeof nest->order);
  for (int i = 0; i < f->rank; i++) {
    const int a = order[i];
    if (shape[a] == 1) continue;
    int continues = nest->n > 0 && nest->summed[nest->n - 1] == walked->summed[a];
    for (int p = 0; continues && p < f->params; p++)
      continues = nest->stride[nest->n - 1][p] == walked->stride[a][p] * shape[a];
    if (!continues) nest->extent[nest->n++] = 1;
    nest->extent[nest->n - 1] *= shape[a];
    nest->summed[nest->n - 1] = walked->summed[a];
    memcpy(nest->stride[nest->n - 1], walked->stride[a], sizeof walked->stride[a]);
  }
  if (nest->n == 0) {
    nest->n = 1, nest->extent[0] = 1, nest->summed[0] = 0;
    memset(nest->stride[0], 0, sizeof nest->stride[0]);
  }
}

static void loop_order(const function_t *f, const int64_t *shape, const nest_t *walked, int *order) {
  int64_t weight[AXES];
  for (int a = 0; a < f->rank; a++) {
    weight[a] = shape[a] == 1 ? INT64_MAX : 0;
    for (int p = 0; p < f->params; p++) {
      const int64_t s = walked->stride[a][p];
      weight[a] = most(weight[a], s < 0 ? -s : s);
    }
    int at = a;
    for (; at > 0 && weight[order[at - 1]] < weight[a]; at--) order[at] = order[at - 1];
    order[at] = a;
  }
}

/* -- mixad.kernel.tiling -- */

static int combine_of(const nest_t *nest, int output) {
  if (nest->n < 1) return STORED; /* never: a nest has an axis, and compilers now know it */
  const int row = (int)(nest->summed[nest->n - 1] >> output & 1);
  const int run = nest->n > 1 && nest->summed[nest->n - 2] >> output & 1;
  return row ? (run ? TILE : ROW) : run ? COLUMNS : STORED;
}

static int is_summed(const nest_t *nest, int output) {
  for (int i = 0; i < nest->n; i++)
    if (nest->summed[i] >> output & 1) return 1;
  return 0;
}

static int64_t blocks_of(const nest_t *nest) { return most(1, up(nest->extent[nest->n - 1], BLOCK)); }

static int64_t runs_of(const nest_t *nest, int64_t rows) {
  return nest->n > 1 ? up(nest->extent[nest->n - 2], rows) : 1;
}

static int64_t tile_rows(const function_t *f, const nest_t *nest, const tiling_t *tiling) {
  if (nest->n == 1) return 1;
  const int n = nest->n;
  const int64_t *extent = nest->extent, last = extent[n - 1], all = product(extent, n);
  int columns = 0;
  for (int k = 0; k < f->outputs; k++) columns |= combine_of(nest, k) == COLUMNS;
  if (columns) {
    const int64_t rows = most(1, extent[n - 2]);
    const int64_t for_tiles = rows * product(extent, n - 2) * blocks_of(nest) / tiling->tiles;
    const int64_t for_memory = all * tiling->least_run / (FEW_PARTIALS * CPU_LEAST_RUN);
    const int64_t for_work = tiling->least / most(1, least(last, BLOCK));
    return least(least(rows, MAX_RUN), most(most(tiling->least_run, for_tiles), most(for_memory, for_work)));
  }
  if (blocks_of(nest) > 1) return 1;
  const int64_t each = most(1, last), for_tiles = least(MAX_TILE / each, product(extent, n - 1) / tiling->tiles);
  return most(1, least(extent[n - 2], most(tiling->least / each, for_tiles)));
}

static int64_t partial_shape(const nest_t *nest, int64_t rows, int output, int64_t *extent) {
  memcpy(extent, nest->extent, sizeof nest->extent);
  if (nest->summed[nest->n - 1] >> output & 1) extent[nest->n - 1] = blocks_of(nest);
  if (nest->n > 1 && nest->summed[nest->n - 2] >> output & 1) extent[nest->n - 2] = runs_of(nest, rows);
  return product(extent, nest->n);
}

static int64_t left_by_tiles(const function_t *f, const nest_t *nest) {
  const int64_t rows = tile_rows(f, nest, &CPU_TILING);
  int64_t left = 0, extent[AXES];
  for (int k = 0; k < f->outputs; k++)
    if (is_summed(nest, k)) left += partial_shape(nest, rows, k, extent);
  return left;
}

/* -- mixad.kernel.folding -- */

/* Shape of what tiles leave of an output; which axes are to be summed. */
static int left_of(const fold_t *fold, int output, int64_t rows, int64_t *extent, int64_t *summed) {
  const nest_t *loops = &fold->loops;
  int n = loops->n;
  for (int i = 0; i < n; i++) summed[i] = loops->summed[i] >> output & 1;
  if (combine_of(loops, output) != STORED) {
    partial_shape(loops, rows, output, extent);
    return n;
  }
  n -= fold->is_split;
  memcpy(extent, loops->extent, sizeof loops->extent);
  extent[n - 1] = fold->length;
  for (int i = 0; i < fold->axes; i++)
    if (fold->segments[output] >> i & 1) extent[n - 1] /= fold->axis[i];
  summed[n - 1] = 0;
  return n;
}

static int64_t left_by_fold(const function_t *f, const fold_t *fold) {
  const int64_t rows = tile_rows(f, &fold->loops, &CPU_TILING);
  int64_t left = 0, extent[AXES], summed[AXES];
  for (int k = 0; k < f->outputs; k++)
    if (is_summed(&fold->loops, k)) left += product(extent, left_of(fold, k, rows, extent, summed));
  return left;
}

static int is_one_run(const nest_t *nest, int p, int first) {
  for (int i = first; i + 1 < nest->n; i++)
    if (nest->stride[i][p] != nest->stride[i + 1][p] * nest->extent[i + 1]) return 0;
  return 1;
}

static void folded(const function_t *f, const nest_t *nest, int count, int64_t longest, fold_t *fold) {
  const int first = nest->n - count;
  const int64_t *own = nest->extent + first, inner = product(own + 1, count - 1);
  nest_t *loops = &fold->loops;
  fold->axes = count, fold->length = own[0] * inner;
  fold->is_split = first == 0 || fold->length > longest;
  int64_t rows = own[0];
  if (fold->is_split) {
    int64_t whole = GANG;
    for (int64_t rest = inner; whole > 1 && rest % 2 == 0; rest /= 2) whole /= 2;
    const int64_t some = FOLDED / (whole * inner) * whole;
    rows = least(own[0], some ? some : FOLDED / inner);
  }
  memcpy(loops, nest, sizeof *nest);
  loops->n = first + fold->is_split + 1;
  if (fold->is_split) loops->extent[first] = up(own[0], rows);
  loops->extent[loops->n - 1] = rows * inner;
  memcpy(fold->axis, own, (size_t)count * sizeof *own);
  fold->axis[0] = rows;
  for (int p = 0; p < f->params; p++) {
    const int is_run = is_one_run(nest, p, first);
    fold->copies[p] = !is_run;
    for (int i = 0; i < count; i++) fold->copied[p][i] = nest->stride[first + i][p];
    if (fold->is_split) loops->stride[first][p] = nest->stride[first][p] * rows;
    loops->stride[loops->n - 1][p] = is_run ? nest->stride[nest->n - 1][p] : 0;
  }
  uint64_t all = ~(uint64_t)0, any = 0;
  for (int i = first; i < nest->n; i++) all &= nest->summed[i], any |= nest->summed[i];
  if (fold->is_split) loops->summed[first] = nest->summed[first];
  loops->summed[loops->n - 1] = all;
  for (int k = 0; k < f->outputs; k++) {
    uint64_t axes = 0;
    if (any >> k & 1 && !(all >> k & 1))
      for (int i = 0; i < count; i++) axes |= (nest->summed[first + i] >> k & 1) << i;
    const int by_columns = combine_of(loops, k) == COLUMNS;
    fold->segments[k] = by_columns ? 0 : axes;
    fold->columns[k] = by_columns ? axes : 0;
  }
}

static int saves(const function_t *f, const nest_t *nest, const fold_t *fold) {
  const int64_t last = nest->extent[nest->n - 1];
  uint64_t moving = 0;
  int64_t count = 0, copies = 0, sums = 0, uniform = 0, varying = 0, by_element = 0;
  for (int p = 0; p < f->params; p++) {
    if (!is_lane(f, p)) continue;
    if (nest->stride[nest->n - 1][p]) moving |= (uint64_t)1 << p, count++;
    if (!fold->copies[p]) continue;
    int is_row = 0;
    for (int i = 1; i < fold->axes; i++) is_row |= fold->copied[p][i] != 0;
    copies++;
    by_element += fold->loops.stride[fold->loops.n - 2][p] == 0 ? COPY_TILE : is_row ? COPY_ROW : COPY_COLUMN;
  }
  for (int k = 0; k < f->outputs; k++) sums += fold->segments[k] != 0;
  if (copies + sums > MAX_COPIES) return 0;
  for (int i = 0; i < f->costs; i++)
    if (f->cost[i].params & moving) varying += f->cost[i].cost;
    else uniform += f->cost[i].cost;
  by_element += SUM_COST * sums;
  const int64_t missing = (GANG - last % GANG) % GANG, by_gang = (GANG_COST * last - GANG) * uniform;
  const int64_t saved = END_COST * GANG * (count + f->outputs) + missing * varying;
  return 10 * saved > GANG * last * by_element + 10 * by_gang;
}

static int fold_of(const function_t *f, const nest_t *nest, int64_t longest, fold_t *fold) {
  int64_t size = 1;
  int count = 0;
  for (int i = 0; i < nest->n; i++)
    if (nest->extent[i] == 0) return 0;
  while (count < nest->n && size < SHORT) size *= nest->extent[nest->n - 1 - count++];
  if (count < 2 || nest->extent[nest->n - 1] % GANG == 0) return 0;
  folded(f, nest, count, longest, fold);
  return saves(f, nest, fold);
}

static int fold_if_few(const function_t *f, const nest_t *nest, int64_t few, fold_t *fold) {
  if (!fold_of(f, nest, FOLDED, fold)) return 0;
  int64_t left = left_by_fold(f, fold);
  if (left * PARTIALS_EACH > product(nest->extent, nest->n)) {
    fold_t other;
    if (fold_of(f, nest, BLOCK, &other) && left_by_fold(f, &other) < left) *fold = other;
    left = left_by_fold(f, fold);
  }
  return left <= few;
}

/* -- mixad.kernel.plan -- */

/* Whether the loop nest is folded. */
static int loops_of(const function_t *f, const int64_t *shape, const nest_t *walked, int folds, nest_t *nest,
                    fold_t *fold) {
  int order[AXES] = {0};
  const int64_t elements = product(shape, f->rank), few = most(FEW_PARTIALS, elements / FOLDED_EACH);
  loop_order(f, shape, walked, order);
  nest_over(f, shape, walked, order, nest);
  if (folds && fold_if_few(f, nest, few, fold)) return 1;
  int64_t left = left_by_tiles(f, nest);
  if (left * PARTIALS_EACH <= elements) return 0;
  for (int k = 0; k + 2 < f->rank; k++) {
    int other[AXES] = {0};
    nest_t found;
    memcpy(other, order, sizeof other);
    for (int i = k; i + 2 < f->rank; i++) other[i] = order[i + 1];
    other[f->rank - 2] = order[k];
    nest_over(f, shape, walked, other, &found);
    const int64_t fewer = left_by_tiles(f, &found);
    if (fewer < left) left = fewer, *nest = found;
  }
  return folds && fold_if_few(f, nest, most(few, left), fold);
}

/* -- variants: kernels of all ways to sum -- */

static int fits(const function_t *f, const variant_t *v, const nest_t *loops, const fold_t *fold) {
  if (v->folded != (fold != 0) || (fold && v->is_split != fold->is_split)) return 0;
  for (int k = 0; k < f->outputs; k++) {
    int combine = combine_of(loops, k);
    if (combine == STORED && is_summed(loops, k)) combine = WIDE;
    uint64_t segments = 0;  /* of a row's axes, to which others of extent 1 are added behind the first */
    if (fold)
      for (int i = 0; i < fold->axes; i++)
        if (fold->segments[k] >> i & 1) segments |= (uint64_t)1 << (i ? i + f->rank - fold->axes : 0);
    if (v->combine[k] != combine || v->segments[k] != segments) return 0;
  }
  for (int p = 0; p < f->params; p++) {
    const argument_t *a = &f->argument[f->param[p]];
    const int64_t last = loops->stride[loops->n - 1][p];
    const int is_copied = fold && fold->copies[p];
    if (a->kind != LANE) continue;
    if (v->steps[p] == ZERO && (is_copied || last != 0)) return 0;
    if (v->steps[p] == UNIT && (is_copied || last != a->size)) return 0;
    if (v->steps[p] == BY_TILE && loops->stride[loops->n - 2][p] != 0) return 0;
    for (int i = 1; v->steps[p] == BY_COLUMN && i < fold->axes; i++)
      if (fold->copied[p][i] != 0) return 0;
  }
  return 1;
}

/* -- mixad.kernel.binding -- */

/* Check arguments against each other; note what they are over the broadcast shape. */
static int walk_arguments(const function_t *f, const mixad_array *const *arrays, int64_t *shape, nest_t *walked,
                          int64_t (*strides)[AXES]) {
  uint64_t is_known = 0;
  memset(walked, 0, sizeof *walked);
  for (int a = 0; a < AXES; a++) shape[a] = 1;
  for (int i = 0; i < f->arguments; i++) {
    const argument_t *argument = &f->argument[i];
    if (argument->kind > INDEXED) continue;
    const int rank = argument->rank, first = f->rank - rank;
    const int64_t *extents = arrays[i] && arrays[i]->extents ? arrays[i]->extents : argument->extents;
    if (!arrays[i] || (rank && !extents)) return MIXAD_SHAPE;
    int64_t packed = argument->size;
    for (int j = rank - 1; j >= 0; j--) {
      strides[i][j] = arrays[i]->strides ? arrays[i]->strides[j] : argument->strides ? argument->strides[j] : packed;
      packed *= extents[j];
      if (argument->extents && extents[j] != argument->extents[j]) return MIXAD_SHAPE;
      if (argument->strides && strides[i][j] != argument->strides[j]) return MIXAD_SHAPE;
      if (argument->kind == INDEXED) continue;
      if (!(argument->own >> (first + j) & 1) && extents[j] != 1) return MIXAD_SHAPE;
      if (!(argument->own >> (first + j) & 1)) continue;
      if (is_known >> (first + j) & 1 && shape[first + j] != extents[j]) return MIXAD_SHAPE;
      is_known |= (uint64_t)1 << (first + j), shape[first + j] = extents[j];
    }
  }
  for (int p = 0; p < f->params; p++) {
    const argument_t *a = &f->argument[f->param[p]];
    if (a->kind != LANE) continue;
    for (int j = 0; j < a->rank; j++) {
      const int axis = f->rank - a->rank + j;
      walked->stride[axis][p] = a->own >> axis & 1 && shape[axis] != 1 ? strides[f->param[p]][j] : 0;
    }
  }
  for (int k = 0; k < f->outputs; k++)
    for (int a = 0; a < f->rank; a++)
      if (!(f->result[k].own >> a & 1) && shape[a] != 1) walked->summed[a] |= (uint64_t)1 << k;
  return 0;
}

/* Note where an output goes, and what is left of it for the end. */
static int walk_output(const plan_t *plan, int k, const mixad_array *array, const nest_t *nest, const fold_t *fold,
                       left_t *left) {
  const result_t *r = &plan->function->result[k];
  const nest_t *loops = fold ? &fold->loops : nest;
  const int rank = plan->function->rank, first = rank - r->rank;
  int64_t packed = r->size;
  memset(left, 0, sizeof *left);
  left->data = array ? (int64_t)(intptr_t)array->data : 0;
  for (int j = r->rank - 1; j >= 0; j--) {
    const int64_t extent = r->own >> (first + j) & 1 ? plan->shape[first + j] : 1;
    if (array && array->extents && array->extents[j] != extent) return MIXAD_SHAPE;
    if (extent != 1) left->stride[first + j] = array && array->strides ? array->strides[j] : packed;
    packed *= extent;
  }
  int64_t extent[AXES] = {0}, summed[AXES] = {0};
  const int combine = combine_of(loops, k), is_sum = is_summed(loops, k) || (fold && fold->segments[k]);
  int n = 0;
  left->is_wide = is_summed(loops, k);
  if (!is_sum) {
    for (int i = 0; i < rank; i++) extent[i] = plan->shape[nest->order[i]], summed[i] = 0;
    n = rank;
  } else if (fold) {
    n = left_of(fold, k, plan->rows, extent, summed);
  } else {
    n = loops->n;
    partial_shape(loops, plan->rows, k, extent);
    for (int i = 0; i < n; i++) summed[i] = loops->summed[i] >> k & 1;
  }
  int64_t step = is_sum && combine == COLUMNS ? PADDED(extent[n - 1]) : extent[n - 1];
  for (int i = n - 1; i >= 0; i--) {
    left->extent[i] = extent[i], left->summed[i] = summed[i];
    left->step[i] = i == n - 1 ? 1 : step;
    if (i < n - 1) step *= extent[i];
  }
  left->dims = n;
  if (fold && fold->columns[k]) {
    for (int i = fold->axes - 1, after = 1; i >= 0; after *= (int)fold->axis[i--]) {
      left->extent[n - 1 + i] = fold->axis[i], left->summed[n - 1 + i] = fold->columns[k] >> i & 1;
      left->step[n - 1 + i] = after;
    }
    left->dims = n - 1 + fold->axes;
  }
  left->memory = step;  /* elements; an address later */
  return 0;
}

/* Whether an output's memory, contiguous in the order of the loops, can be the caller's. */
static int is_in_place(const plan_t *plan, const result_t *r, const left_t *left) {
  int64_t packed = r->size;
  for (int a = 0; a < plan->function->rank; a++)
    if (r->own >> a & 1 && plan->shape[a] == 0) return 1;
  for (int i = plan->function->rank - 1; i >= 0; i--) {
    const int a = (int)plan->order[i];
    if (plan->shape[a] == 1 || !(r->own >> a & 1)) continue;
    if (left->stride[a] != packed) return 0;
    packed *= plan->shape[a];
  }
  return 1;
}

static int bind(const function_t *f, plan_t *plan, const tiling_t *tiling, int folds,
                const mixad_array *const *arrays, const int64_t *numbers, const mixad_array *const *outputs) {
  static const double nothing = 0;
  int64_t strides[ARGUMENTS][AXES];
  nest_t walked, nest;
  fold_t found, *fold = &found;
  memset(plan, 0, sizeof *plan);
  plan->function = f;
  int status = walk_arguments(f, arrays, plan->shape, &walked, strides);
  if (status) return status;
  if (!loops_of(f, plan->shape, &walked, folds, &nest, fold)) fold = 0;
  int chosen = 0, is_empty = product(plan->shape, f->rank) == 0;
  for (;; fold = 0) {
    for (chosen = 0; !is_empty && chosen < f->variants; chosen++)
      if (fits(f, &f->variant[chosen], fold ? &fold->loops : &nest, fold)) break;
    if (chosen < f->variants || !fold || f->sums) break;  /* values need no fold to have the same bits */
  }
  if (chosen == f->variants) return MIXAD_LAYOUT;
  const variant_t *v = plan->variant = &f->variant[chosen];
  const nest_t *loops = fold ? &fold->loops : &nest;
  const int outer = loops->n - 1, pads = f->rank - loops->n;
  int64_t *w = plan->words;
  for (int i = 0; i < f->rank; i++) plan->order[i] = nest.order[i];
  plan->rows = tile_rows(f, loops, tiling), plan->row = loops->extent[outer];
  w[W_EXTENT] = loops->extent[outer], w[W_BLOCKS] = blocks_of(loops);
  w[W_ROWS] = plan->rows, w[W_RUNS] = runs_of(loops, plan->rows);
  for (int i = 0; i + 1 < f->rank; i++) w[W_OUTER + i] = i < pads ? 1 : loops->extent[i - pads];
  if (fold) {
    const int more = f->rank - fold->axes;
    w[v->at[f->params + f->outputs]] = fold->length;
    for (int i = 0; i < f->rank; i++)
      w[v->at[f->params + f->outputs] + 1 + i] = i == 0 ? fold->axis[0] : i <= more ? 1 : fold->axis[i - more];
  }
  for (int p = 0; p < f->params; p++) {
    const argument_t *a = &f->argument[f->param[p]];
    int64_t *own = w + v->at[p];
    if (a->kind == NUMBER) own[0] = numbers[f->param[p]];
    if (a->kind == CONSTANT) own[0] = a->bits;
    if (a->kind > INDEXED) continue;
    const mixad_array *array = arrays[f->param[p]];
    const int64_t *extents = array->extents ? array->extents : a->extents;
    own[0] = (int64_t)(intptr_t)array->data;
    if (a->kind == INDEXED) {
      if (a->rank && product(extents, a->rank) == 0) own[0] = (int64_t)(intptr_t)&nothing;
      for (int j = 0; j < a->rank; j++) own[1 + j] = extents[j], own[1 + a->rank + j] = strides[f->param[p]][j];
      continue;
    }
    for (int i = pads; i + 1 < f->rank; i++) own[1 + i] = loops->stride[i - pads][p];
    if (v->steps[p] == ANY) own[f->rank] = loops->stride[outer][p];
    if (v->steps[p] >= BY_TILE)
      for (int i = 0; i < fold->axes; i++) own[f->rank + (i ? i + f->rank - fold->axes : 0)] = fold->copied[p][i];
  }
  plan->tiles = is_empty ? 0 : product(loops->extent, loops->n - 2) * w[W_RUNS] * w[W_BLOCKS];
  for (int k = 0; k < f->outputs; k++) {
    status = walk_output(plan, k, outputs[k], &nest, fold, &plan->left[k]);
    if (status) return status;
  }
  return 0;
}
