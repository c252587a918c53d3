//! Runs the server transcripts of the README and the guide unchanged, except for the ports, which
//! the kernel selects, and the time limit of curl.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::ports::reserve;
use crate::run::{Place, command_output};

const README: &str = include_str!("../../../../README.md");
const GUIDE: &str = include_str!("../../../../docs/guide/serve.md");

/// The language and the content of each block, in order.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let inside = page.split("```").skip(1).step_by(2);
    inside
        .map(|block| block.split_once('\n').unwrap())
        .collect()
}

/// The command with fewer messages, so that the test takes less time.
fn with_fewer_messages(command: &str) -> String {
    match command.split_once("--messages ") {
        Some((begin, rest)) => {
            let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{begin}--messages 100{rest}")
        }
        None => command.to_owned(),
    }
}

/// The commands of a transcript, each with its output.
fn steps(transcript: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in transcript.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push((command.to_owned(), String::new()));
        } else {
            let (_, printed) = steps
                .last_mut()
                .expect("a transcript starts with a command");
            printed.push_str(line);
            printed.push('\n');
        }
    }
    steps
}

/// A shell that executes the commands of a page.
struct Shell {
    place: Place,
    variables: BTreeMap<String, String>,
    ports: [u16; 2],
    /// The process that was started with `&`, and its output.
    follower: Option<(Child, Lines<BufReader<ChildStderr>>)>,
}

impl Shell {
    fn new() -> Self {
        Self {
            place: Place::new(),
            variables: BTreeMap::new(),
            ports: [(); 2].map(|()| reserve([127, 0, 0, 1]).port()),
            follower: None,
        }
    }

    fn command(&self, text: &str) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut shell = self.place.command("/bin/sh");
        shell.args(["-c", text]).envs(&self.variables);
        // The addresses are those of the page, with other ports.
        let [http, native] = self.ports;
        shell.env("WEIR_SERVE_HTTP", format!("127.0.0.1:{http}"));
        shell.env("WEIR_SERVE_NATIVE", format!("127.0.0.1:{native}"));
        shell.env("WEIR_SERVE_LAME_DUCK", "0ms");
        shell.env("PATH", format!("{}:{path}", bin.display()));
        shell
    }

    fn with_ports(&self, text: &str) -> String {
        let [http, native] = self.ports;
        let text = text.replace(":7070", &format!(":{http}"));
        text.replace(":7071", &format!(":{native}"))
    }

    /// Runs a command that prints `printed` and then receives until its time limit. Ends it at the
    /// last byte, so that the test does not depend on that limit.
    fn run_until(&self, command: &str, printed: &str) {
        let mut child = self.command(&format!("exec {command}"));
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let mut seen = vec![0; printed.len()];
        let read = child.stdout.take().unwrap().read_exact(&mut seen);
        drop(child.kill());
        child.wait().unwrap();
        assert_eq!(String::from_utf8_lossy(&seen), printed, "{command}");
        read.unwrap();
    }

    fn run(&mut self, command: &str, printed: &str) {
        if command.contains(" --max-time 3 ") {
            self.run_until(&command.replace(" 3 ", " 60 "), printed);
            return;
        }
        if let Some(command) = command.strip_suffix(" &") {
            let mut child = self.command(&format!("exec {command}"));
            let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
            let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
            let wanted = printed.lines().count();
            let lines: Vec<String> = stderr.by_ref().take(wanted).map(Result::unwrap).collect();
            assert_eq!(lines.join("\n") + "\n", printed, "{command}");
            self.follower = Some((child, stderr));
            return;
        }
        let set = command
            .strip_prefix("export ")
            .and_then(|set| set.split_once('='));
        if let Some((name, value)) = set {
            self.variables.insert(name.to_owned(), value.to_owned());
        } else if let Some(name) = command.strip_prefix("unset ") {
            self.variables.remove(name);
        } else if command == "kill %1" {
            let (mut child, stderr) = self.follower.take().unwrap();
            let kill = format!("kill {}", child.id());
            assert!(self.command(&kill).status().unwrap().success());
            assert_eq!(child.wait().unwrap().code(), Some(0));
            // The log of the server, in lines of JSON, is not part of the transcript.
            let rest: Vec<String> = stderr.map(Result::unwrap).collect();
            assert!(rest.iter().all(|line| line.starts_with('{')), "{rest:?}");
        } else {
            let output = self
                .command(&format!("{{ {command}\n}} 2>&1"))
                .output()
                .unwrap();
            let mut seen = String::from_utf8(output.stdout).unwrap();
            if !seen.is_empty() && !seen.ends_with('\n') {
                // The next prompt starts on a new line.
                seen.push('\n');
            }
            assert_eq!(seen, printed, "{command}");
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.follower.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn the_readme_prints_the_real_output_of_a_server() {
    let mut shell = Shell::new();
    let mut transcripts = blocks(README).into_iter();
    let (_, served) = transcripts
        .rfind(|(_, block)| block.contains("$ weir serve"))
        .unwrap();
    for (command, printed) in steps(served) {
        shell.run(&shell.with_ports(&command), &shell.with_ports(&printed));
    }
}

#[test]
fn the_guide_to_serving_prints_the_real_output() {
    let mut shell = Shell::new();
    let blocks = blocks(GUIDE);
    assert!(blocks.len() >= 10, "{}", blocks.len());
    for (language, block) in blocks {
        match language {
            "console" => {
                for (command, printed) in steps(block) {
                    shell.run(&shell.with_ports(&command), &shell.with_ports(&printed));
                }
            }
            // Commands whose output differs with each run.
            "sh" => {
                for command in block.lines() {
                    let output = shell.command(&with_fewer_messages(command)).output();
                    command_output(output.unwrap()).ok();
                }
            }
            other => panic!("no test of {other}"),
        }
    }
}
