//! Builds a packet that contains a list, and prints its bytes:
//! `cargo run -p weir-psyc --example render`
#![allow(clippy::print_stdout, reason = "a program that prints")]

use weir_psyc::{Escaped, Item, Modifier, Packet, RenderError, Renderer};

fn main() -> Result<(), RenderError> {
    let renderer = Renderer::new();
    let mut gates = Vec::new();
    let names = [Item::new(b"north"), Item::new(b"south"), Item::new(b"a|b")];
    renderer.append_list(Some(b"_nick"), &names, &mut gates)?;

    let routing = [Modifier::set(b"_context", b"psyc://lock.example/@gauge")];
    let entity = [
        Modifier::assign(b"_list_gates", &gates),
        Modifier::assign(b"_level", b"2.1"),
        Modifier::set(b"_note", b"two\nlines"),
    ];
    let packet = Packet::new(
        &routing,
        &entity,
        b"_notice_gate_open",
        b"The north gate is open.",
    );

    let mut bytes = Vec::new();
    renderer.append(&packet, &mut bytes)?;
    println!("{} bytes", renderer.size(&packet)?);
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        println!("{}", Escaped(line));
    }
    Ok(())
}
