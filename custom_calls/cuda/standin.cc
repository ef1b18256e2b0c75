// The CUDA source, built for the host.
#define XBAR_STANDIN
#include "handlers.cu"
