// A slot of a table is claimed by a compare and exchange; only the winner writes beside it.
#include <metal_stdlib>
using namespace metal;

kernel void claim_by_exchange(device const uint *keys, device atomic_uint *slots, device uint *owners,
                              uint i [[thread_position_in_grid]]) {
    uint slot = keys[i] % 64;
    for (uint tries = 0; tries < 64; tries++) {
        uint empty;
        bool is_mine;
        do {
            empty = 0;
            is_mine = atomic_compare_exchange_weak_explicit(&slots[slot], &empty, keys[i] + 1, memory_order_relaxed,
                                                            memory_order_relaxed);
        } while (!is_mine && empty == 0);
#ifdef WRONG
        if (is_mine || empty == keys[i] + 1) {
#else
        if (is_mine) {
#endif
            owners[slot] = i + 1;  // first, second
            break;
        }
        if (empty == keys[i] + 1)
            break;
        slot = (slot + 1) % 64;
    }
}
