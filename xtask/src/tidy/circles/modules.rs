//! The modules that the files of a crate declare, and which file names items of which other file.
//!
//! Invariant: a name that the crate does not define (a foreign crate, a macro) adds no use.

use super::Uses;
use crate::tidy::rust_source;
use crate::tree;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum re-exports that are followed for one name. A longer chain is circular.
const HOPS_MAX: usize = 32;

/// One file of the crate.
#[derive(Debug, Default)]
struct File {
    /// The path below the source folder, without the extension.
    name: String,
    /// The parent module; `None` for the root.
    parent: Option<usize>,
    /// Child modules with their own files.
    children: BTreeMap<String, usize>,
    /// Names that a `use` imports into the module, each with its path.
    aliases: BTreeMap<String, Vec<String>>,
    /// Modules from which a `use` imports every name.
    globs: Vec<Vec<String>>,
    /// Paths in the code of the file.
    paths: Vec<Vec<String>>,
}

/// All files of one crate, the root first.
#[derive(Debug)]
pub(super) struct Modules(Vec<File>);

impl Modules {
    /// Reads the crate with the root `{folder}/{root}.rs`; `None` if there is no such file.
    pub(super) fn read(folder: &str, root: &str) -> anyhow::Result<Option<Self>> {
        let text = |name: &str| {
            let path = format!("{folder}/{name}.rs");
            let exists = tree::root().join(&path).is_file();
            exists.then(|| tree::text(&path)).transpose()
        };
        Self::build(root, &text)
    }

    fn build(
        root: &str,
        text: &dyn Fn(&str) -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<Option<Self>> {
        if text(root)?.is_none() {
            return Ok(None);
        }
        let mut files = vec![File {
            name: root.to_owned(),
            ..File::default()
        }];
        let mut at = 0;
        while at < files.len() {
            let name = files[at].name.clone();
            let folder = match files[at].parent {
                Some(_) => format!("{}/", name.trim_end_matches("/mod")),
                None => String::new(),
            };
            let source = text(&name)?.unwrap_or_default();
            let declared = scan(&tokens(&source), &mut files[at]);
            for child in declared {
                for name in [format!("{folder}{child}"), format!("{folder}{child}/mod")] {
                    if text(&name)?.is_some() {
                        let index = files.len();
                        files[at].children.insert(child.clone(), index);
                        files.push(File {
                            name,
                            parent: Some(at),
                            ..File::default()
                        });
                        break;
                    }
                }
            }
            at += 1;
        }
        Ok(Some(Self(files)))
    }

    /// Adds, for each file, the files it uses.
    pub(super) fn uses(&self, uses: &mut Uses) {
        for (at, file) in self.0.iter().enumerate() {
            let targets = uses.entry(file.name.clone()).or_default();
            for path in &file.paths {
                if let Some(target) = self.resolve(at, path, HOPS_MAX)
                    && target != at
                {
                    targets.insert(self.0[target].name.clone());
                }
            }
        }
    }

    /// The file that defines the item `path`, as named in the file `at`.
    fn resolve(&self, at: usize, path: &[String], hops: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let mut here = match first.as_str() {
            "crate" => 0,
            "self" => at,
            "super" => self.0[at].parent?,
            _ => return self.inside(at, path, hops, false),
        };
        let mut rest = rest;
        while let Some((first, after)) = rest.split_first().filter(|(first, _)| *first == "super") {
            debug_assert_eq!(first, "super");
            here = self.0[here].parent?;
            rest = after;
        }
        self.inside(here, rest, hops, true)
    }

    /// The file that defines `path`, relative to the module `at`. `own`: a name that is neither a
    /// module nor an alias counts as defined there.
    fn inside(&self, at: usize, path: &[String], hops: usize, own: bool) -> Option<usize> {
        let hops = hops.checked_sub(1)?;
        let Some((first, rest)) = path.split_first() else {
            return own.then_some(at);
        };
        let file = &self.0[at];
        if let Some(child) = file.children.get(first) {
            return self.inside(*child, rest, hops, true);
        }
        if let Some(alias) = file.aliases.get(first) {
            let whole: Vec<String> = alias.iter().chain(rest).cloned().collect();
            if alias.first() != Some(first) || alias.len() > 1 {
                return self.resolve(at, &whole, hops);
            }
        }
        for glob in &file.globs {
            let whole: Vec<String> = glob.iter().chain(path).cloned().collect();
            if let Some(module) = self.resolve(at, glob, hops)
                && module != at
                && let Some(found) = self.resolve(at, &whole, hops)
                && found != module
            {
                return Some(found);
            }
        }
        own.then_some(at)
    }
}

/// The tokens of the code of a file, without comments, literals and tests.
fn tokens(text: &str) -> Vec<String> {
    let code = rust_source::code(text);
    let mut tokens: Vec<String> = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(next) = chars.next() {
        if next.is_whitespace() {
            continue;
        }
        let mut token = String::from(next);
        if next.is_alphanumeric() || next == '_' {
            while let Some(more) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                token.push(more);
            }
        } else if next == ':' && chars.next_if_eq(&':').is_some() {
            token.push(':');
        }
        tokens.push(token);
    }
    without_tests(&tokens)
}

/// The tokens without items that are compiled for tests only.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut remaining = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !starts(&tokens[at..], &["#", "[", "cfg", "(", "test", ")", "]"]) {
            remaining.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0_usize;
        while at < tokens.len() {
            let token = tokens[at].as_str();
            at += 1;
            match token {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            // A field or a variant ends with a comma, or with the enclosing braces.
            let ends = matches!(token, ";" | "," | "}") && depth == 0;
            if ends {
                break;
            }
        }
    }
    remaining
}

fn starts(tokens: &[String], with: &[&str]) -> bool {
    tokens.len() >= with.len() && tokens.iter().zip(with).all(|(token, with)| token == with)
}

/// Fills `file` from its tokens. Returns the declared modules.
fn scan(tokens: &[String], file: &mut File) -> Vec<String> {
    let mut declared = Vec::new();
    // For each open brace: whether it belongs to an inline module.
    let mut braces: Vec<bool> = Vec::new();
    // Re-exported names. They count as used only if the code names them again.
    let mut reexports: Vec<(String, Vec<String>)> = Vec::new();
    let mut words: BTreeSet<&str> = BTreeSet::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let depth = braces.iter().filter(|inner| **inner).count();
        let before = at.checked_sub(1).map(|before| tokens[before].as_str());
        let next = tokens.get(at + 1).map(String::as_str);
        if token == "mod" && tokens.get(at + 2).is_some_and(|end| end == ";") {
            declared.extend(next.map(str::to_owned));
            at += 3;
        } else if token == "mod" && tokens.get(at + 2).is_some_and(|open| open == "{") {
            braces.push(true);
            at += 3;
        } else if token == "use" && before != Some("+") && next != Some("<") {
            let end = tokens[at..].iter().position(|token| token == ";");
            let end = end.map_or(tokens.len(), |end| at + end);
            let public = matches!(before, Some("pub" | ")"));
            let mut leaves = Vec::new();
            leaf(&tokens[at + 1..end], &[], &mut leaves);
            for (name, path) in leaves {
                let path = outward(path, depth);
                match name.as_str() {
                    "*" => file.globs.push(path.clone()),
                    _ if depth == 0 => {
                        file.aliases.insert(name.clone(), path.clone());
                    }
                    _ => {}
                }
                if public && name != "*" {
                    reexports.push((name, path));
                } else if !public {
                    file.paths.push(path);
                }
            }
            at = end;
        } else if next == Some("::") && !matches!(before, Some("::" | ".")) && is_word(token) {
            let mut path = vec![token.to_owned()];
            let mut end = at + 1;
            while tokens.get(end).is_some_and(|sign| sign == "::")
                && tokens.get(end + 1).is_some_and(|word| is_word(word))
            {
                path.push(tokens[end + 1].clone());
                end += 2;
            }
            words.insert(token);
            file.paths.push(outward(path, depth));
            at = end.max(at + 1);
        } else {
            match token {
                "{" => braces.push(false),
                "}" => {
                    braces.pop();
                }
                _ => {
                    words.insert(token);
                }
            }
            at += 1;
        }
    }
    for (name, path) in reexports {
        if words.contains(name.as_str()) {
            file.paths.push(path);
        }
    }
    declared
}

fn is_word(token: &str) -> bool {
    token
        .chars()
        .next()
        .is_some_and(|c| c.is_alphabetic() || c == '_')
}

/// Converts a path in an inline module to a path in the file.
fn outward(mut path: Vec<String>, depth: usize) -> Vec<String> {
    for _ in 0..depth {
        match path.first().map(String::as_str) {
            Some("super") => {
                path.remove(0);
                if path.first().is_none_or(|next| next != "super") {
                    path.insert(0, "self".to_owned());
                    break;
                }
            }
            // The item is in this file.
            Some("self") => return vec!["self".to_owned()],
            _ => break,
        }
    }
    path
}

/// The names that a `use` tree imports, each with its full path.
fn leaf(tree: &[String], before: &[String], leaves: &mut Vec<(String, Vec<String>)>) {
    let mut path = before.to_vec();
    let mut at = 0;
    while at < tree.len() {
        match tree[at].as_str() {
            "::" => {}
            "*" => {
                leaves.push(("*".to_owned(), path));
                return;
            }
            "{" => {
                let mut depth = 0_usize;
                let mut start = at + 1;
                for (end, token) in tree.iter().enumerate().skip(at) {
                    match token.as_str() {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    let closed = depth == 0;
                    if closed || (depth == 1 && token == ",") {
                        if start < end {
                            leaf(&tree[start..end], &path, leaves);
                        }
                        start = end + 1;
                    }
                    if closed {
                        return;
                    }
                }
                return;
            }
            "as" => {
                if let Some(name) = tree.get(at + 1) {
                    leaves.push((name.clone(), path));
                }
                return;
            }
            // `{self, …}` names the module itself.
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if let Some(name) = path.last() {
        leaves.push((name.clone(), path));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Modules, Uses};

    /// Checks the uses of `lib` and its modules, in the form `from -> to`.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let text = |name: &str| {
            let found = files.iter().find(|(other, _)| *other == name);
            Ok(found.map(|(_, text)| (*text).to_owned()))
        };
        let modules = Modules::build("lib", &text).unwrap().unwrap();
        let mut uses = Uses::new();
        modules.uses(&mut uses);
        let found: Vec<String> = uses
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| format!("{from} -> {to}")))
            .collect();
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn a_name_leads_to_the_file_that_defines_it() {
        let lib = ("lib", "mod a; mod b; pub use a::c::Deep;");
        let a = ("a", "pub(crate) mod c; pub(crate) use c::Deep as Shallow;");
        let deep = ("a/c", "pub struct Deep;");
        check(
            &[lib, a, deep, ("b", "use crate::a::Shallow;")],
            &["b -> a/c"],
        );
        check(&[lib, a, deep, ("b", "use crate::Deep;")], &["b -> a/c"]);
        check(
            &[lib, a, deep, ("b", "use crate::a::{self, c};")],
            &["b -> a", "b -> a/c"],
        );
        check(
            &[lib, a, deep, ("b", "fn f(d: super::a::c::Deep) {}")],
            &["b -> a/c"],
        );
        check(&[lib, a, deep, ("b", "use crate::a::*;")], &["b -> a"]);
        check(
            &[lib, a, deep, ("b", "use std::a::c; use other::Deep;")],
            &[],
        );
        check(
            &[lib, a, ("a/c", "use super::super::b::B;"), ("b", "")],
            &["a/c -> b"],
        );
    }

    #[test]
    fn a_reexport_is_not_a_use() {
        let c = ("a/c", "pub struct Deep;");
        let lib = ("lib", "mod a;");
        check(&[lib, ("a", "mod c; pub use c::Deep;"), c], &[]);
        check(
            &[lib, ("a", "mod c; pub use c::Deep; type T = Deep;"), c],
            &["a -> a/c"],
        );
        check(
            &[lib, ("a", "mod c; fn f() { c::deep(); }"), c],
            &["a -> a/c"],
        );
    }

    #[test]
    fn tests_and_text_do_not_count() {
        let lib = ("lib", "mod a; mod b;");
        let none = |text: &'static str| check(&[lib, ("a", text), ("b", "")], &[]);
        none("// use crate::b::B;");
        none("const A: &str = \"crate::b::B\";");
        none("#[cfg(test)] mod tests { use crate::b::B; }");
        none("#[cfg(test)] use crate::b::B;");
        none("mod inner { use super::B; }");
        check(
            &[
                lib,
                ("a", "mod inner { use super::super::b::B; }"),
                ("b", ""),
            ],
            &["a -> b"],
        );
    }
}
