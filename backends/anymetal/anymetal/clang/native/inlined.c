// What a kernel calls before it reads, in itself: compiled to bitcode, which is linked to that of a kernel.
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;

#include "anymetal/abi.h"
#include "bounds.h"

extern _Thread_local __attribute__((tls_model("initial-exec"))) const bounds *anymetal_bounds;

#define READ(NAME, BYTES, LOG) \
    void anymetal_##NAME##BYTES(void *p); \
    __attribute__((always_inline)) void __tsan_##NAME##BYTES(void *p) { \
        const bounds *b = anymetal_bounds; \
        const uint64_t slot = ((uint64_t)p - b->arena) >> b->slot_bits; \
        if (__builtin_expect(slot >= SLOTS || (uint64_t)p - b->first[slot] >= b->count[LOG][slot], 0)) \
            anymetal_##NAME##BYTES(p); \
    }
#define READS(BYTES, LOG) READ(read, BYTES, LOG) READ(unaligned_read, BYTES, LOG)
READS(1, 0) READS(2, 1) READS(4, 2) READS(8, 3) READS(16, 4)
