//! The endpoints below `/bench` behind the connections of weir-server on one
//! thread, with their limits and deadlines, but without a store, rights or
//! metrics.
//!
//! `weir-edge-stack --listen ADDRESS` serves until it is killed.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use rust_hyper::bench::{self, BODY_MAX};
use rust_hyper::locked;
use tokio::net::TcpSocket;
use weir_server::stack::{Response, Stack};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--version"] => {
            let (weir, tokio) = (locked("weir-server"), locked("tokio"));
            println!("weir-server {weir}, tokio {tokio}");
            ExitCode::SUCCESS
        }
        ["--listen", address] => match address.parse().map(serve) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => fail(&error.to_string()),
            Err(_) => fail("not an address"),
        },
        _ => fail("usage: weir-edge-stack --listen ADDRESS | --version"),
    }
}

fn fail(what: &str) -> ExitCode {
    eprintln!("weir-edge-stack: {what}");
    ExitCode::from(2)
}

fn serve(address: SocketAddr) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        println!("listening on {}", listener.local_addr()?);
        let stack = Stack::new(
            |request| {
                let answer =
                    bench::answer(request.method, request.path, request.query, request.body);
                Response {
                    status: answer.status,
                    media_type: answer.media_type,
                    allow: answer.allow,
                    body: answer.body,
                }
            },
            BODY_MAX,
        );
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(Arc::clone(&stack).serve(stream));
        }
    })
}
