// <metal_logging>: nothing is written.
#pragma once

namespace metal {

struct os_log {
    template <class A, class B> constexpr os_log(A, B) {}
    template <class... A> void log(A...) const {}
    template <class... A> void log_debug(A...) const {}
    template <class... A> void log_info(A...) const {}
    template <class... A> void log_default(A...) const {}
    template <class... A> void log_error(A...) const {}
    template <class... A> void log_fault(A...) const {}
};

} // namespace metal
