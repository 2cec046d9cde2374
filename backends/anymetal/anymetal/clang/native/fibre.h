// A fibre is a stack and a saved stack pointer. Switching saves the registers that the platform's calling convention
// says a function must keep, and nothing else. System V x86-64, and AAPCS64 (aarch64 Linux and macOS). A switch returns
// the `result` of the one that comes back to it. It ends in a jump: a processor predicts the place to which a return
// goes from the calls before, which were those of another fibre.
#pragma once

#if defined(__x86_64__)
enum { FIBRE_FRAME = 8, FIBRE_ENTRY = 6 }; // rbp rbx r12-r15, the return address, one word of padding

__attribute__((naked, noinline)) static void *fibre_switch(void **save, void *load, void *result) {
    __asm__ volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        "movq %rdx, %rax\n popq %rcx\n jmpq *%rcx");
}
#elif defined(__aarch64__)
enum { FIBRE_FRAME = 20, FIBRE_ENTRY = 11 }; // x19-x30 (x30 is the return address), d8-d15

__attribute__((naked, noinline)) static void *fibre_switch(void **save, void *load, void *result) {
    __asm__ volatile(
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
        "mov x3, sp\n str x3, [x0]\n mov sp, x1\n"
        "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n mov x0, x2\n br x30");
}
#else
#error "no fibre switch for this processor"
#endif

// The stack pointer of a new fibre that will enter `entry` at its first turn; `top` is aligned to a page.
static void *fibre_prepare(uint8_t *top, void (*entry)(void)) {
    uint64_t *frame = (uint64_t *)top - FIBRE_FRAME;
    memset(frame, 0, FIBRE_FRAME * sizeof *frame);
    frame[FIBRE_ENTRY] = (uint64_t)entry;
    return frame;
}
