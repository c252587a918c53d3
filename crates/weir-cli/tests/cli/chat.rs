//! Tests `programs/chat`: a server with its program, and a client in each of two languages.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};

use crate::run::Place;

/// The path of a file of this repository.
fn source(name: &str) -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(name)
}

/// A child process. Dropping this kills it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A server over HTTP, with its address.
struct Server {
    url: String,
    _process: Running,
    _stderr: Lines<BufReader<ChildStderr>>,
}

impl Server {
    fn new(place: &Place) -> Self {
        let words = ["serve", "--at", "data", "--native", "off", "--http", ":0"];
        let mut command = place.weir();
        let child = command.args(words).stderr(Stdio::piped()).spawn();
        let mut process = Running(child.unwrap());
        let mut stderr = BufReader::new(process.0.stderr.take().unwrap()).lines();
        let url = loop {
            let line = stderr.next().expect("the server starts").unwrap();
            if let Some((_, at)) = line.split_once("HTTP at ") {
                break at.to_owned();
            }
        };
        Self {
            url,
            _process: process,
            _stderr: stderr,
        }
    }
}

/// A user in a room.
struct Person {
    types: ChildStdin,
    sees: Lines<BufReader<ChildStdout>>,
    _process: Running,
}

impl Person {
    fn new(place: &Place, (program, client): (&str, &str), url: &str, name: &str) -> Self {
        let mut command = place.command(program);
        command.arg(source("programs/chat").join(client));
        command.args([url, "room", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Running(command.spawn().unwrap());
        Self {
            types: process.0.stdin.take().unwrap(),
            sees: BufReader::new(process.0.stdout.take().unwrap()).lines(),
            _process: process,
        }
    }

    fn say(&mut self, text: &str) {
        writeln!(self.types, "{text}").unwrap();
    }

    fn sees(&mut self, text: &str) {
        let line = self.sees.next().expect("the client runs").unwrap();
        assert_eq!(line, text);
    }
}

#[test]
fn two_clients_in_two_languages_exchange_messages_and_report_rejections() {
    let place = Place::new();
    let module = std::fs::read(source("programs/prebuilt/chat.wasm")).unwrap();
    place.write("chat.wasm", module);
    let deploy = "program deploy room chat.wasm --args {u32:2}{u32:0}{u32:20}{u8:0} --at data";
    place.run(deploy).ok();
    let server = Server::new(&place);
    let (python, node) = (("python3", "chat.py"), ("node", "chat.mjs"));
    let mut ann = Person::new(&place, python, &server.url, "ann");
    ann.say("hello");
    ann.sees("ann: hello");
    let mut bob = Person::new(&place, node, &server.url, "bob");
    // A user who joins later reads the earlier messages.
    bob.sees("ann: hello");
    bob.say("hi, Änn");
    bob.sees("bob: hi, Änn");
    ann.sees("bob: hi, Änn");
    for text in ["42", "{\"a\": 1}", "\"quoted\""] {
        ann.say(text);
        bob.sees(&format!("ann: {text}"));
        ann.sees(&format!("ann: {text}"));
    }
    let long = "8 bytes of offset, then a text that is not too long";
    ann.say("a text of more than twenty bytes");
    ann.sees(&format!("* not said: {long}"));
    bob.say("a text of more than twenty bytes");
    bob.sees(&format!("* not said: {long}"));
    bob.say("bye");
    ann.sees("bob: bye");
    // The room consists of its history.
    let messages = place
        .run("tail room --type put -o json --columns key,value --at data")
        .ok()
        .json();
    assert_eq!(messages.as_array().unwrap().len(), 6, "{messages}");
    assert_eq!(messages[0]["key"], "ann");
}
