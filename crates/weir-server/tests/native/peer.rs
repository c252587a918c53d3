//! A test server, and a client that sends given packets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use weir_core::batch::BatchBuilder;
use weir_core::intention::IntentionLimits;
use weir_core::{ClientId, Intention, Operation, Outcome, OutcomeRun};
use weir_protocol::{Deframer, Encoder, Hello, Message, OutcomeLines, Packet, RefusalMessage};
use weir_server::{Address, Server, ServerConfig};
use weir_store::{Durability, OpenOptions, Store};

/// Longest time that a test waits for bytes; then it fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) store: Arc<Store>,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            limits: IntentionLimits {
                value_bytes_max: 64 << 20,
                ..IntentionLimits::default()
            },
            ..OpenOptions::default()
        };
        let store = Arc::new(Store::open(dir.path(), &options).unwrap());
        let mut config = ServerConfig::default();
        config.http = None;
        config.native = Some(Address("127.0.0.1:0".parse().unwrap()));
        // On a busy machine a test reads large responses slowly; this is not what it tests.
        config.write_timeout = Duration::from_mins(10);
        config.body_rate_after = Duration::from_mins(10);
        change(&mut config);
        let server = Server::start(config, Arc::clone(&store)).unwrap();
        let address = server.native_addr().unwrap();
        Self {
            server,
            store,
            address,
            _dir: dir,
        }
    }

    /// Returns a connection without HELLO.
    pub(crate) fn raw(&self) -> Peer {
        Peer::new(TcpStream::connect(self.address).unwrap())
    }

    /// Returns a connection without a session.
    pub(crate) fn plain(&self) -> Peer {
        let mut peer = self.raw();
        peer.hello(&Hello::default());
        peer
    }

    /// Returns a connection with a session, and the next nonce.
    pub(crate) fn session(&self, client: ClientId) -> (Peer, u64) {
        let mut peer = self.raw();
        let hello = Hello {
            client,
            ..Hello::default()
        };
        let next = peer.hello(&hello);
        (peer, next)
    }

    pub(crate) fn create(&self, topic: &str) {
        let options = weir_core::TopicOptions::default();
        let create = Intention::new(topic, Operation::Create { options: &options });
        self.store.propose(&[create]).unwrap().wait().unwrap();
    }

    /// Returns the values of a topic's puts, in order.
    pub(crate) fn values(&self, topic: &str) -> Vec<Vec<u8>> {
        let mut reader = self
            .store
            .read(topic, weir_core::ConsequenceOffset::ZERO)
            .unwrap();
        let mut values = Vec::new();
        while let Some(page) = reader.next_page().unwrap() {
            for record in &page {
                let record = record.unwrap();
                if record.kind == weir_core::RecordKind::Put {
                    values.push(record.value.to_vec());
                }
            }
        }
        values
    }
}

pub(crate) const CLIENT: ClientId = ClientId([0x11; 16]);

/// Builds items of puts with nonces from `first` on (0: no session). Each value is the number.
pub(crate) fn puts(client: ClientId, topic: &str, first: u64, count: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::default();
    let limits = IntentionLimits::default();
    for n in 0..u64::from(count) {
        let value = (first + n).to_string();
        let put = Operation::Put {
            key: b"k",
            value: value.as_bytes(),
        };
        let mut intention = Intention::new(topic, put);
        if !client.is_none() {
            intention = intention.under(client, first + n);
        }
        builder.push(&intention, &limits).unwrap();
    }
    builder.items().to_vec()
}

pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    deframer: Deframer,
    buffer: Vec<u8>,
    consumed: usize,
    encoder: Encoder,
}

/// A packet that owns its bytes.
pub(crate) struct ReceivedPacket {
    bytes: Vec<u8>,
}

impl ReceivedPacket {
    pub(crate) fn packet(&self) -> Packet<'_> {
        let mut deframer = Deframer::default();
        let size = deframer.find(&self.bytes).unwrap().unwrap();
        deframer.read(&self.bytes[..size]).unwrap()
    }

    pub(crate) fn runs(&self) -> Vec<(u64, OutcomeRun)> {
        match self.packet().message {
            Message::Committed { lines } => OutcomeLines::new(lines).map(Option::unwrap).collect(),
            other => panic!("expected outcomes, got {other:?}"),
        }
    }

    pub(crate) fn refusal(&self) -> RefusalMessage<'_> {
        match self.packet().message {
            Message::Refusal(refusal) => refusal,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self {
            stream,
            deframer: Deframer::default(),
            buffer: Vec::new(),
            consumed: 0,
            encoder: Encoder::default(),
        }
    }

    /// Sends HELLO; returns the next nonce.
    pub(crate) fn hello(&mut self, hello: &Hello<'_>) -> u64 {
        self.send(&Packet::new(Message::Hello(*hello)));
        let got = self.next().unwrap();
        let Message::HelloOk(answer) = got.packet().message else {
            panic!("expected HELLO_OK, got {:?}", got.packet());
        };
        answer.next
    }

    pub(crate) fn bytes(packet: &Packet<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(Encoder::default().encode(packet, &mut out));
        out
    }

    pub(crate) fn send(&mut self, packet: &Packet<'_>) {
        let mut out = Vec::new();
        assert!(self.encoder.encode(packet, &mut out));
        self.stream.write_all(&out).unwrap();
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Puts with nonces from `first` on.
    pub(crate) fn send_puts(&mut self, client: ClientId, topic: &str, first: u64, count: u32) {
        let items = puts(client, topic, first, count);
        let items = &items;
        self.send(&Packet::new(Message::Write { count, items }));
    }

    /// Returns the next packet that is not empty; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<ReceivedPacket> {
        loop {
            let rest = &self.buffer[self.consumed..];
            if let Some(size) = self.deframer.find(rest).unwrap() {
                let bytes = rest[..size].to_vec();
                self.consumed += size;
                let got = ReceivedPacket { bytes };
                match got.packet().message {
                    Message::Empty | Message::Config { .. } => continue,
                    _ => return Some(got),
                }
            }
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no packet arrived: {error}"),
            }
        }
    }

    /// Waits for the outcomes of `count` nonces; returns them one by one.
    pub(crate) fn outcomes(&mut self, count: usize) -> Vec<(u64, Outcome)> {
        let mut outcomes = Vec::new();
        while outcomes.len() < count {
            let got = self.next().expect("outcomes");
            for (nonce, run) in got.runs() {
                for n in 0..u64::from(run.count) {
                    let number = if nonce == 0 { 0 } else { nonce + n };
                    outcomes.push((number, run.outcome.nth(n)));
                }
            }
        }
        assert_eq!(outcomes.len(), count);
        outcomes
    }

    /// Whether the server has closed the connection without another packet.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.next().is_none()
    }
}
