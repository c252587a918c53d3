//! A proxy in front of the peer port of each node. All other nodes connect through it.
//!
//! Each link has two directions. A blocked direction retains its bytes, like a network that loses
//! every packet, and delivers them when it is unblocked. The first frame of a connection identifies
//! the sender (docs/formats/cluster.md, "Peer protocol").

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const HEAD_BYTES: usize = 20;
const HELLO: u8 = 1;
/// Position of the sender's number in the body of a HELLO.
const FROM: std::ops::Range<usize> = 26..34;
const HELLO_BYTES_MAX: usize = 1 << 10;

#[derive(Default)]
struct State {
    cut: BTreeSet<(u64, u64)>,
    delay: Duration,
}

/// All links between the nodes. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Links(Arc<(Mutex<State>, Condvar)>);

impl Links {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.change(|state| {
            state.cut.insert((from, to));
        });
    }

    pub(crate) fn restore(&self, from: u64, to: u64) {
        self.change(|state| {
            state.cut.remove(&(from, to));
        });
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    pub(crate) fn heal(&self) {
        self.change(|state| *state = State::default());
    }

    /// Blocks while this direction is blocked, then for the delay of the network.
    fn pass(&self, from: u64, to: u64) {
        let mut state = self.0.0.lock().unwrap();
        while state.cut.contains(&(from, to)) {
            state = self.0.1.wait(state).unwrap();
        }
        let delay = state.delay;
        drop(state);
        std::thread::sleep(delay);
    }

    /// Serves the peer address of `node`, and forwards its connections to `target`.
    pub(crate) fn serve(&self, node: u64, listener: TcpListener, target: SocketAddr) {
        let links = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let links = links.clone();
                // A broken connection does not affect the test.
                std::thread::spawn(move || drop(links.connection(node, stream, target)));
            }
        });
    }

    fn connection(&self, node: u64, mut caller: TcpStream, at: SocketAddr) -> std::io::Result<()> {
        let mut first = vec![0; HEAD_BYTES];
        caller.read_exact(&mut first)?;
        let [l0, l1, l2, l3, kind, ..] = first[..] else {
            unreachable!("a head has this length")
        };
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        first.resize(HEAD_BYTES + len.min(HELLO_BYTES_MAX), 0);
        caller.read_exact(&mut first[HEAD_BYTES..])?;
        let number = first[HEAD_BYTES..].get(FROM).map(|n| n.try_into().unwrap());
        // A joining process has no number yet, so its link is never blocked.
        let from = match (kind, number) {
            (HELLO, Some(number)) => u64::from_le_bytes(number),
            _ => 0,
        };
        self.pass(from, node);
        let mut target = TcpStream::connect(at)?;
        for stream in [&caller, &target] {
            stream.set_nodelay(true)?;
        }
        target.write_all(&first)?;
        let (back_read, back_write) = (target.try_clone()?, caller.try_clone()?);
        let links = self.clone();
        std::thread::spawn(move || links.carry(node, from, back_read, back_write));
        self.carry(from, node, caller, target);
        Ok(())
    }

    fn carry(&self, from: u64, to: u64, mut read: TcpStream, mut write: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let bytes = read.read(&mut buffer).unwrap_or(0);
            self.pass(from, to);
            if bytes == 0 || write.write_all(&buffer[..bytes]).is_err() {
                // The end of one side ends the connection.
                drop(write.shutdown(Shutdown::Both));
                drop(read.shutdown(Shutdown::Both));
                return;
            }
        }
    }
}
