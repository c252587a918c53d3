//! Prints the events of the packets on standard input, as they arrive:
//! `printf '|\n\n_ping\nhello\n|\n' | cargo run -p weir-psyc --example events`
#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::io::{Read, stdin};
use std::process::ExitCode;

use weir_psyc::{EventPrinter, Mode, ParseStep, Parser};

/// Bytes per read of the input.
const READ_BYTES: usize = 4096;

fn main() -> std::io::Result<ExitCode> {
    let mut parser = Parser::new(Mode::Full);
    let mut printer = EventPrinter::joined();
    let mut buffer = Vec::new();
    loop {
        let mut line = String::new();
        let step = parser.step(&buffer);
        printer
            .print(&step, &mut line)
            .map_err(std::io::Error::other)?;
        print!("{line}");
        match step {
            ParseStep::NeedMore(_) => {
                // Drop the consumed bytes; the next read is appended to the rest.
                buffer.drain(..parser.release());
                let kept = buffer.len();
                buffer.resize(kept + READ_BYTES, 0);
                let read = stdin().read(&mut buffer[kept..])?;
                buffer.truncate(kept + read);
                if read == 0 {
                    println!("{}", if parser.is_clean() { "end" } else { "cut off" });
                    return Ok(ExitCode::from(u8::from(!parser.is_clean())));
                }
            }
            ParseStep::Error(error) => {
                println!("{error}");
                return Ok(ExitCode::FAILURE);
            }
            _ => {}
        }
    }
}
