//! A transcript file: a description, then blocks of commands, a rule, and the complete output of
//! the commands.
//!
//! ```text
//! # Prose: what this file shows.
//!
//! create orders
//! put orders a=1
//! ----
//! 1 VALID: orders 1 CREATE last
//! 2 VALID: orders 2 PUT a=1 last
//! ```
//!
//! The output of a block ends at the first empty line. An indented line belongs to the command
//! above it. A rewrite of a file changes outputs only.

use std::fmt::Write as _;

/// Commands and their expected output.
#[derive(Debug)]
pub(crate) struct Block {
    /// Number of the line with the rule, from 1.
    pub(crate) line: usize,
    /// The text above the rule, unchanged.
    text: String,
    pub(crate) commands: Vec<Command>,
    pub(crate) expected: String,
}

/// One command with the lines that are indented below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    pub(crate) words: Vec<String>,
    pub(crate) below: Vec<Command>,
}

/// Splits a file into blocks. Fails with the number of a misplaced line.
pub(crate) fn read(text: &str) -> Result<Vec<Block>, String> {
    if !text.starts_with("# ") {
        return Err("line 1: the file must begin by saying what it shows".into());
    }
    let mut blocks = Vec::new();
    let mut above: Vec<&str> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, content)) = lines.next() {
        if content != "----" {
            above.push(content);
            continue;
        }
        let mut expected = String::new();
        for (_, output) in lines.by_ref().take_while(|(_, output)| !output.is_empty()) {
            let _ = writeln!(expected, "{output}");
        }
        blocks.push(Block {
            line,
            commands: commands(&above, line)?,
            text: above.join("\n") + "\n",
            expected,
        });
        above.clear();
    }
    if above.iter().any(|line| !line.is_empty()) {
        return Err("the end: commands without a rule".into());
    }
    Ok(blocks)
}

/// The text of a file with new outputs.
pub(crate) fn write(blocks: &[Block], outputs: &[String]) -> String {
    let parts = blocks.iter().zip(outputs);
    let texts: Vec<String> = parts
        .map(|(block, output)| format!("{}----\n{output}", block.text))
        .collect();
    texts.join("\n")
}

fn commands(lines: &[&str], rule: usize) -> Result<Vec<Command>, String> {
    let is_command = |line: &&&str| !line.is_empty() && !line.starts_with('#');
    let kept: Vec<&str> = lines.iter().filter(is_command).copied().collect();
    let (found, rest) = at_depth(&kept, 0);
    if found.is_empty() || !rest.is_empty() {
        return Err(format!("above line {rule}: a command, not indented"));
    }
    Ok(found)
}

fn at_depth<'a>(mut lines: &'a [&'a str], depth: usize) -> (Vec<Command>, &'a [&'a str]) {
    let mut found = Vec::new();
    while let Some((line, rest)) = lines.split_first() {
        let indent = line.len() - line.trim_start().len();
        if indent < depth {
            break;
        }
        let next_depth = |l: &&str| l.len() - l.trim_start().len();
        let below_depth = rest.first().map_or(0, next_depth);
        let (below, after) = if below_depth > indent {
            at_depth(rest, below_depth)
        } else {
            (Vec::new(), rest)
        };
        found.push(Command {
            words: line.split_whitespace().map(str::to_owned).collect(),
            below,
        });
        lines = after;
    }
    (found, lines)
}
