//! Compares the header with the code and with its documentation, using a C compiler.
//!
//! Names, parameters and structures are written twice: in `include/weir.h` for people, and in `src`
//! for the compiler. These tests declare those of `src` to the C compiler again, after the header.
//! A difference does not compile.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is a failed test"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(here(path)).unwrap()
}

/// Converts `OpenOptions` into `weir_open_options`.
fn c_name(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    match out.as_str() {
        "_weir" => "weir".to_owned(),
        "_release" => "weir_release".to_owned(),
        other => format!("weir{other}"),
    }
}

/// Converts a type of `src` into C.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(rest) = rust.strip_prefix("*const ") {
        return format!("const {}*", c_type(rest));
    }
    if let Some(rest) = rust.strip_prefix("*mut ") {
        return format!("{}*", c_type(rest));
    }
    match rust {
        "u8" => "uint8_t ".to_owned(),
        "u16" => "uint16_t ".to_owned(),
        "i64" => "int64_t ".to_owned(),
        "u32" => "uint32_t ".to_owned(),
        "i32" => "int32_t ".to_owned(),
        "u64" => "uint64_t ".to_owned(),
        "usize" => "size_t ".to_owned(),
        "c_char" => "char ".to_owned(),
        "c_void" => "void ".to_owned(),
        "Option<Release>" => "weir_release ".to_owned(),
        name => format!("{} ", c_name(name)),
    }
}

struct Function {
    name: String,
    parameters: Vec<String>,
    answer: String,
}

/// Both headers.
const HEADERS: &str = "#include \"weir.h\"\n#include \"weir_psyc.h\"\n";

/// The functions that `src/entry.rs` and `src/psyc/entry.rs` list.
fn functions() -> Vec<Function> {
    let text = read("src/entry.rs") + &read("src/psyc/entry.rs");
    let mut found = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if line.ends_with("! {") && !line.starts_with(' ') {
            section = line;
        } else if line.starts_with('}') {
            section = "";
        }
        let line = line.trim();
        let declared = line
            .strip_prefix("pub unsafe extern \"C\" fn ")
            .or_else(|| line.strip_prefix("pub extern \"C\" fn "))
            .or_else(|| line.strip_prefix("fn "))
            .filter(|rest| rest.starts_with("weir_"));
        let Some(rest) = declared else { continue };
        let (name, rest) = rest.split_once('(').unwrap();
        let (parameters, rest) = rest.split_once(')').unwrap();
        let mut parameters: Vec<String> = parameters
            .split(',')
            .filter_map(|parameter| Some(c_type(parameter.split_once(": ")?.1)))
            .collect();
        let answer = rest.split_once("-> ");
        let answer = answer.map(|(_, rest)| {
            let end = rest.find(['=', '{']).unwrap_or(rest.len());
            c_type(&rest[..end])
        });
        let answer = match section {
            "calls! {" | "codec! {" => {
                parameters.push("weir_error *".to_owned());
                "int32_t ".to_owned()
            }
            "calls_without_error! {" => "int32_t ".to_owned(),
            _ => answer.unwrap_or_else(|| "void ".to_owned()),
        };
        found.push(Function {
            name: name.to_owned(),
            parameters,
            answer,
        });
    }
    found
}

struct Structure {
    name: String,
    /// Name, type in C, and the text after the name.
    fields: Vec<(String, String, String)>,
}

/// The structures of `src/raw.rs` and `src/psyc/raw.rs` that are not handles.
fn structures() -> Vec<Structure> {
    let mut found: Vec<Structure> = Vec::new();
    let text = read("src/raw.rs") + &read("src/psyc/raw.rs");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            found.push(Structure {
                name: c_name(rest.trim_end_matches(" {")),
                fields: Vec::new(),
            });
        } else if let Some(field) = line.strip_prefix("    pub ") {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").unwrap();
            let name = name.trim_start_matches("r#").to_owned();
            let (kind, after) = match kind.strip_prefix('[') {
                Some(array) => {
                    let (kind, count) = array.trim_end_matches(']').split_once("; ").unwrap();
                    (c_type(kind), format!("[{count}]"))
                }
                None => (c_type(kind), String::new()),
            };
            let last = found.last_mut().unwrap();
            last.fields.push((name, kind, after));
        }
    }
    found.retain(|structure| !structure.fields.is_empty());
    found
}

/// Compiles a program with the header and runs it.
fn run(name: &str, program: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(name);
    std::fs::write(&source, program).unwrap();
    let binary = folder.path().join("program");
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here("include"))
        .args(arguments)
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    if arguments.contains(&"-fsyntax-only") {
        return String::new();
    }
    let output = Command::new(&binary).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn prototypes_equal_the_code() {
    let functions = functions();
    let mut program = HEADERS.to_owned();
    for function in &functions {
        let Function {
            name,
            parameters,
            answer,
        } = function;
        let parameters = match parameters.as_slice() {
            [] => "void".to_owned(),
            some => some.join(", "),
        };
        writeln!(program, "{answer}{name}({parameters});").unwrap();
    }
    program.push_str("int main(void) { return 0; }\n");
    run("prototypes.c", &program, &["-std=c99", "-fsyntax-only"]);
    run(
        "prototypes.c",
        &program,
        &["-std=c11", "-pedantic", "-fsyntax-only"],
    );

    // The header has no function that the code does not have.
    let header = read("include/weir.h") + &read("include/weir_psyc.h");
    let declared = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        let begins = line.starts_with(|first: char| first.is_ascii_alphabetic());
        (begins && name.starts_with("weir_")).then(|| name.to_owned())
    };
    let declared: BTreeSet<String> = header.lines().filter_map(declared).collect();
    let coded: BTreeSet<String> = functions.into_iter().map(|f| f.name).collect();
    assert_eq!(declared, coded);
    assert!(coded.len() > 50);
}

#[test]
fn every_function_of_the_codec_is_fuzzed() {
    let program = read("../../bindings/c/tests/psyc_fuzz.c");
    let words: BTreeSet<&str> = program
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .collect();
    let functions = functions().into_iter().map(|function| function.name);
    let codec: Vec<String> = functions
        .filter(|name| name.starts_with("weir_psyc_"))
        .collect();
    assert!(codec.len() > 25);
    for name in codec {
        assert!(words.contains(name.as_str()), "{name}");
    }
}

#[test]
fn the_header_compiles_as_cxx() {
    let program = format!("{HEADERS}int main() {{ return weir_abi_version() == 0; }}\n");
    run("header.cc", &program, &["-std=c++11", "-fsyntax-only"]);
}

#[test]
fn the_loop_of_the_readme_compiles() {
    let page = read("../../bindings/c/README.md");
    let (_, codec) = page.split_once("## The codec\n").unwrap();
    let (_, codec) = codec.split_once("```c\n").unwrap();
    let (codec, _) = codec.split_once("```").unwrap();
    let program = format!(
        "{HEADERS}int32_t parse(weir_slice bytes);\n\
         int32_t parse(weir_slice bytes) {{\n\
         weir_psyc_event events[64];\nweir_error error;\nsize_t count, used;\nint32_t done;\n\
         {codec}return done;\n}}\n"
    );
    run("codec.c", &program, &["-std=c11", "-fsyntax-only"]);
}

#[test]
fn structures_equal_the_code_and_the_tables() {
    let structures = structures();
    let mut program = format!("#include <stdio.h>\n{HEADERS}");
    let mut main = String::new();
    for Structure { name, fields } in &structures {
        writeln!(program, "struct coded_{name} {{").unwrap();
        for (field, kind, after) in fields {
            writeln!(program, "{kind}{field}{after};").unwrap();
        }
        program.push_str("};\n");
        let same =
            |what: &str| format!("_Static_assert({}, \"{name}\");\n", what.replace('@', name));
        program += &same("sizeof(@) == sizeof(struct coded_@)");
        program += &same("_Alignof(@) == _Alignof(struct coded_@)");
        let line = format!(
            "### `{name}`: %zu bytes, aligned to %zu\\n\\n| at | bytes | field | type |\\n|---|---|---|---|\\n"
        );
        writeln!(
            main,
            "printf(\"{line}\", sizeof({name}), _Alignof({name}));"
        )
        .unwrap();
        for (field, kind, after) in fields {
            program += &same(&format!(
                "offsetof(@, {field}) == offsetof(struct coded_@, {field})"
            ));
            let member = format!("((struct coded_{name} *)0)->{field}");
            program += &same(&format!("sizeof({member}) == sizeof(((@ *)0)->{field})"));
            let shown = format!("{}{after}", kind.trim_end());
            writeln!(
                main,
                "printf(\"| %zu | %zu | `{field}` | `{shown}` |\\n\", offsetof({name}, {field}), sizeof({member}));"
            )
            .unwrap();
        }
        main.push_str("printf(\"\\n\");\n");
    }
    writeln!(program, "int main(void) {{\n{main}return 0;\n}}").unwrap();
    let tables = run("structures.c", &program, &["-std=c11"]);
    let page = read("../../docs/formats/abi.md");
    let (_, bytes) = page.split_once("## Bytes\n").unwrap();
    let (_, bytes) = bytes.split_once("###").unwrap();
    assert_eq!(format!("###{}", bytes.trim_end()), tables.trim_end());
    assert!(structures.len() > 25);
}

#[test]
fn the_header_has_the_version_of_the_code() {
    let header = read("include/weir.h");
    let line = header
        .lines()
        .find(|line| line.contains("define WEIR_ABI_VERSION"));
    let number = line.unwrap().rsplit(' ').next().unwrap();
    let number = number.trim_start_matches("0x").trim_end_matches('u');
    let version = weir_capi::weir_abi_version();
    assert_eq!(u32::from_str_radix(number, 16).unwrap(), version);
}
