//! `vanilla`: does what a topic without a program does, and does not read the bytes.
#![no_std]

use weir_guest::emit_input;

#[unsafe(no_mangle)]
extern "C" fn weir_abi() -> i32 {
    1
}

// Without `program!`, which reads the header that this program does not need.
#[unsafe(no_mangle)]
extern "C" fn weir_apply() -> i32 {
    emit_input();
    0
}

#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    weir_guest::trap()
}
