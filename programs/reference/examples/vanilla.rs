//! `vanilla`: what a plain topic does, without a look at the bytes.
#![no_std]

use weir_guest::emit_input;

#[unsafe(no_mangle)]
extern "C" fn weir_abi() -> i32 {
    1
}

// Not by `program!`, which asks for the header that this program never needs.
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
