//! Tests `programs/chat`: a server with its program, and a client in each of two languages.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use crate::ports::reserve;
use crate::run::{Place, command_output};

const README: &str = include_str!("../../../../programs/chat/README.md");

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
    /// Serves the directory `data` at an address of HTTP.
    fn new(place: &Place, http: &str) -> Self {
        let mut command = place.weir();
        command.args(["serve", "--at", "data", "--native", "off", "--http", http]);
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        let child = command.stderr(Stdio::piped()).spawn();
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
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
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

    fn line(&mut self) -> String {
        self.sees.next().expect("the client runs").unwrap()
    }

    fn sees(&mut self, text: &str) {
        assert_eq!(self.line(), text);
    }
}

/// Two clients in two languages.
const CLIENTS: [(&str, &str); 2] = [("python3", "chat.py"), ("node", "chat.mjs")];

/// A server with a room for texts of at most this many bytes. No other process gets its port if the
/// server ends.
fn room(place: &Place, text_bytes_max: u32) -> Server {
    let module = std::fs::read(source("programs/prebuilt/chat.wasm")).unwrap();
    place.write("chat.wasm", module);
    let args = format!("{{u32:2}}{{u32:0}}{{u32:{text_bytes_max}}}{{u8:0}}");
    let deploy = format!("program deploy room chat.wasm --args {args} --at data");
    place.run(&deploy).ok();
    Server::new(place, &reserve([127, 0, 0, 1]).to_string())
}

#[test]
fn two_clients_in_two_languages_exchange_messages_and_report_rejections() {
    let place = Place::new();
    let server = room(&place, 20);
    let [python, node] = CLIENTS;
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

#[test]
fn clients_show_no_control_characters_and_reconnect_to_a_server_that_was_killed() {
    let place = Place::new();
    let server = room(&place, 20);
    let url = server.url.clone();
    let [mut ann, mut bob] = CLIENTS.map(|client| Person::new(&place, client, &url, client.0));
    ann.say("\u{1b}[2J \u{9b}31m");
    for person in [&mut ann, &mut bob] {
        person.sees("python3: \u{fffd}[2J \u{fffd}31m");
    }
    drop(server);
    for person in [&mut ann, &mut bob] {
        person.say("nobody");
        let line = person.line();
        assert!(line.starts_with("* perhaps not said: "), "{line}");
    }
    let _server = Server::new(&place, url.trim_start_matches("http://"));
    bob.say("back");
    for person in [&mut ann, &mut bob] {
        // The server may have been killed before it answered the first text of ann.
        let mut line = person.line();
        while line.starts_with("* perhaps not said: ") {
            line = person.line();
        }
        assert_eq!(line, "node: back");
    }
}

/// Writes a text without a media type. If it is JSON, events contain it as a value, or in base64
/// if it has many levels.
fn write_without_type(server: &Server, user: &str, text: &str) {
    let address = server.url.trim_start_matches("http://");
    let body = [&[0; 8][..], text.as_bytes()].concat();
    let head = format!(
        "POST /v1/topics/room/events?key={user} HTTP/1.1\r\nhost: {address}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(&[head.as_bytes(), &body].concat())
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
}

#[test]
fn clients_show_json_of_other_clients() {
    let place = Place::new();
    let server = room(&place, 300);
    let [mut ann, mut bob] =
        CLIENTS.map(|client| Person::new(&place, client, &server.url, client.0));
    let nested = "[".repeat(101) + &"]".repeat(101);
    for text in ["42", &nested] {
        write_without_type(&server, "eve", text);
        for person in [&mut bob, &mut ann] {
            person.sees(&format!("eve: {text}"));
        }
    }
    bob.say("still here");
    for person in [&mut bob, &mut ann] {
        person.sees("node: still here");
    }
}

/// The lines of the `sh` blocks of the README.
fn printed_commands() -> Vec<&'static str> {
    let blocks = README.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
    lines.collect()
}

#[test]
fn the_commands_of_the_readme_run() {
    let place = Place::new();
    let directory = place.path("chat");
    std::fs::create_dir(&directory).unwrap();
    for (_, client) in CLIENTS {
        let copy = directory.join(client);
        std::fs::copy(source("programs/chat").join(client), copy).unwrap();
    }
    std::os::unix::fs::symlink(source("programs/prebuilt"), place.path("prebuilt")).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let shell = |line: &str| {
        let mut shell = place.command("/bin/sh");
        shell.args(["-c", &format!("exec {line}")]);
        shell.env("PATH", format!("{}:{path}", bin.display()));
        shell.current_dir(&directory);
        shell
    };
    let commands = printed_commands();
    let [deploy, serve, first, second, tail] = commands[..] else {
        panic!("{commands:?}");
    };
    command_output(shell(deploy).output().unwrap()).ok();
    let serve = serve.strip_suffix(" &").unwrap();
    let mut serve = shell(&serve.replace(":7070", ":0"));
    serve.env("WEIR_SERVE_NATIVE", "off");
    let server = Server::start(serve);
    let client =
        |line: &str| Person::start(shell(&line.replace("http://127.0.0.1:7070", &server.url)));
    let (mut ann, mut bob) = (client(first), client(second));
    for person in [&mut ann, &mut bob] {
        person.say("hello");
    }
    let mut lines = [ann.line(), ann.line()];
    lines.sort();
    assert_eq!(lines, ["ann: hello", "bob: hello"]);
    let table = command_output(shell(tail).output().unwrap()).ok().text();
    let mut rows: Vec<&str> = table.lines().map(str::trim_end).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["KEY  VALUE", "ann  hello", "bob  hello"]);
}
