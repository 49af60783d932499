// CUDA's driver as far as mixad-torch uses it, where there is none: cuda-bindings loads this library in its place.
// What images, kernels and launches are is asked of functions that a process sets; without one nothing is launched.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define DRIVER extern "C" __attribute__((visibility("default"))) int

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

struct Hooks {
  intptr_t (*load)(const void *image);
  intptr_t (*find)(intptr_t module, const char *name);
  int (*function_attribute)(int attribute, intptr_t function);
  int (*device_attribute)(int attribute);
  int (*launch)(intptr_t function, unsigned blocks, unsigned x, unsigned y, void *stream, void *argument);
};

static Hooks hooks;
static thread_local void *context;

// Sets a result to what was found, if anything was.
static int found(intptr_t *result, intptr_t value, int otherwise) {
  return (*result = value) ? SUCCESS : otherwise;
}

DRIVER stand_in(const Hooks *given) { return hooks = *given, SUCCESS; }

DRIVER cuInit(unsigned) { return SUCCESS; }
DRIVER cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
DRIVER cuDeviceGetAttribute(int *value, int attribute, int) {
  return *value = hooks.device_attribute(attribute), SUCCESS;
}
DRIVER cuDevicePrimaryCtxRetain(void **primary, int) { return *primary = &hooks, SUCCESS; }
DRIVER cuCtxSetCurrent(void *given) { return context = given, SUCCESS; }

DRIVER cuModuleLoadData(intptr_t *module, const void *image) {
  return context ? found(module, hooks.load(image), INVALID_IMAGE) : INVALID_CONTEXT;
}
DRIVER cuModuleGetFunction(intptr_t *function, intptr_t module, const char *name) {
  return found(function, hooks.find(module, name), NOT_FOUND);
}
DRIVER cuFuncGetAttribute(int *value, int attribute, intptr_t function) {
  return context ? (*value = hooks.function_attribute(attribute, function), SUCCESS) : INVALID_CONTEXT;
}
DRIVER cuLaunchKernel(intptr_t function, unsigned blocks, unsigned, unsigned, unsigned x, unsigned y, unsigned,
                      unsigned, void *stream, void **params, void **) {
  if (!context) return INVALID_CONTEXT;
  if (!blocks) return INVALID_VALUE;
  return hooks.launch ? hooks.launch(function, blocks, x, y, stream, params[0]) : SUCCESS;
}
DRIVER cuGetExportTable(const void **, const void *) { return NOT_FOUND; }  // NVRTC asks, where there is a driver
DRIVER cuGetErrorString(int, const char **told) { return *told = "a stand-in's error", SUCCESS; }

DRIVER cuGetProcAddress_v2(const char *name, intptr_t *function, int, uint64_t, int *missing) {
  Dl_info own;
  dladdr((void *)cuInit, &own);
  void *library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (!strcmp(name, "cuGetProcAddress")) name = "cuGetProcAddress_v2";
  const int status = found(function, (intptr_t)dlsym(library, name), NOT_FOUND);
  if (missing) *missing = status != SUCCESS;
  return status;
}
