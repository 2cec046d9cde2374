// The accesses that need no more than a comparison: reads of buffers that nobody writes. The code of a kernel has it
// inlined (inlined.c).
#pragma once

enum { SLOTS = ANYMETAL_MAX_BUFFERS + ANYMETAL_MAX_LOCALS };

// Slots of an arena, and for each where its memory begins and where an access of 1, 2, 4, 8 or 16 bytes may begin: below
// so many bytes behind it. 0 if the access has to be recorded.
typedef struct {
    uint64_t arena, slot_bits;
    uint64_t first[SLOTS], count[5][SLOTS];
} bounds;
