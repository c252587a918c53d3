//! Uniforms, templates, keywords, names and packet ids: the vectors, and further properties.

use crate::vectors;
use proptest::prelude::*;
use weir_psyc::{
    AnyUniform, Method, PacketId, Progress, Rendered, Renderer, RoutingVariable, Template, Uniform,
    VarType, is_list, keyword, standard_template,
};

fn print_count(file: &str, cases: &[vectors::Case]) {
    println!("{file}: {} cases", cases.len());
}

#[test]
fn uniform_vectors_hold() {
    let cases = vectors::read("uniforms.txt", &["in"]);
    for case in &cases {
        let input = case.bytes("in").expect("input");
        let text = match Uniform::parse(&input) {
            Err(error) => format!("error\t{}\n", error.name()),
            Ok(uniform) => {
                let columns = case
                    .expected
                    .iter()
                    .filter_map(|line| line.split(' ').next());
                let lines = columns.map(|column| {
                    let parts = uniform.parts();
                    let part = match parts.iter().find(|(name, _)| *name == column) {
                        Some((_, part)) => part.unwrap_or_default(),
                        None => uniform.kind().name().as_bytes(),
                    };
                    format!("{column}\t{}\n", String::from_utf8_lossy(part))
                });
                lines.collect()
            }
        };
        case.check(&text, "parsed");
    }
    print_count("uniforms.txt", &cases);
}

#[test]
fn the_joined_parts_of_a_uniform_equal_its_input() {
    for case in vectors::read("uniforms.txt", &["in"]) {
        let input = case.bytes("in").expect("input");
        let Ok(uniform) = Uniform::parse(&input) else {
            continue;
        };
        let colon = if uniform.host_port().len() > uniform.host().len() {
            ":"
        } else {
            ""
        };
        let hash = if uniform.channel().is_some() { "#" } else { "" };
        let pieces: [&[u8]; 11] = [
            uniform.scheme(),
            b":",
            uniform.slashes(),
            uniform.host(),
            colon.as_bytes(),
            uniform.port().unwrap_or_default(),
            uniform.transport().unwrap_or_default(),
            uniform.slash().unwrap_or_default(),
            uniform.resource().unwrap_or_default(),
            hash.as_bytes(),
            uniform.channel().unwrap_or_default(),
        ];
        assert_eq!(pieces.concat(), input);
        assert_eq!(
            [uniform.root(), uniform.path().unwrap_or_default()].concat(),
            input
        );
        assert_eq!([uniform.scheme(), b"://", uniform.body()].concat(), input);
    }
}

#[test]
fn other_schemes_are_split_and_psyc_is_parsed() {
    let any = Uniform::parse_any;
    let other = |scheme: &'static str, rest: &'static str| {
        Ok(AnyUniform::Other {
            scheme: scheme.as_bytes(),
            rest: rest.as_bytes(),
        })
    };
    assert_eq!(
        any(b"xmpp:otter@mill.example"),
        other("xmpp", "otter@mill.example")
    );
    assert_eq!(any(b"mailto:"), other("mailto", ""));
    assert_eq!(any(b"a+b-c.1:x:y"), other("a+b-c.1", "x:y"));
    assert!(matches!(any(b"PSYC://h/~x"), Ok(AnyUniform::Psyc(_))));
    for bad in ["", "xmpp", ":x", "1a:x", "a b:x", "psyc:x", "_a:x"] {
        assert!(any(bad.as_bytes()).is_err(), "{bad}");
    }
    let host = "h".repeat(253);
    assert!(Uniform::parse(format!("psyc://{host}/").as_bytes()).is_ok());
    assert!(Uniform::parse(format!("psyc://{host}h/").as_bytes()).is_err());
    let peer = Uniform::parse(b"psyc://h:-65535c").expect("uniform");
    assert_eq!(
        (peer.port_number(), peer.is_unreachable()),
        (Some(65535), true)
    );
}

fn lookup(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        b"_a" => Some(b"1"),
        b"_nick" => Some(b"heron"),
        b"_e" => Some(b""),
        _ => None,
    }
}

fn render_in_buffers(template: Template<'_>, size: usize) -> (Vec<u8>, Rendered) {
    let mut writer = template.writer(lookup);
    let mut joined = Vec::new();
    let mut buffer = vec![0; size];
    loop {
        match writer.write(&mut buffer) {
            Progress::Incomplete(written) => {
                assert_eq!(written, size, "an incomplete buffer is full");
                joined.extend_from_slice(&buffer[..written]);
            }
            Progress::Done(written, how) => {
                joined.extend_from_slice(&buffer[..written]);
                return (joined, how);
            }
        }
    }
}

#[test]
fn template_vectors_hold_for_every_buffer_size() {
    let cases = vectors::read("templates.txt", &["in"]);
    for case in &cases {
        let input = case.bytes("in").expect("input");
        let template = Template::new(&input);
        let mut out = Vec::new();
        let how = template.render(lookup, &mut out);
        let text = match how {
            Rendered::Substituted => format!("text\t{}\n", String::from_utf8_lossy(&out)),
            Rendered::NoSubstitution => {
                assert_eq!(out, input);
                "no-substitution\n".to_string()
            }
        };
        case.check(&text, "rendered");
        for size in 1..out.len() + 2 {
            assert_eq!(render_in_buffers(template, size), (out.clone(), how));
        }
    }
    print_count("templates.txt", &cases);
}

#[test]
fn standard_templates_are_as_listed() {
    let cases = vectors::read("standard-templates.txt", &[]);
    for case in &cases {
        let method = case.title.rsplit(' ').next().unwrap_or_default();
        let mut out = Vec::new();
        standard_template(method.as_bytes())
            .expect("template")
            .render(|_| None, &mut out);
        case.check(
            &format!("text\t{}\n", String::from_utf8_lossy(&out)),
            "looked up",
        );
        let longer = format!("{method}_more");
        assert!(standard_template(longer.as_bytes()).is_some());
    }
    assert!(standard_template(b"_notice").is_none());
    print_count("standard-templates.txt", &cases);
}

proptest! {
    #![proptest_config(crate::generate::cases(64))]

    #[test]
    fn output_to_small_buffers_joins_to_the_whole(
        pieces in prop::collection::vec(
            proptest::sample::select(vec!["[", "]", "[_a]", "[_nick]", "[_e]", "[_x]", "text", "[]", "<<", ">>"]),
            0..12,
        ),
        size in 1usize..9,
        wide in any::<bool>(),
    ) {
        let text = pieces.concat();
        let mut template = Template::new(text.as_bytes());
        if wide {
            template = template.with_brackets(b"<<", b">>").expect("brackets");
        }
        let mut out = Vec::new();
        let how = template.render(lookup, &mut out);
        prop_assert_eq!(render_in_buffers(template, size), (out, how));
    }

    #[test]
    fn parts_of_a_uniform_parse_again(input in "(psyc|PSYC|xmpp)?:?/?/?[a-z.:/~@$#_?\\-0-9 ]{0,24}") {
        if let Ok(uniform) = Uniform::parse(input.as_bytes()) {
            prop_assert!(uniform.entity().len() <= input.len());
            let root = Uniform::parse(uniform.root()).expect("the root is a uniform");
            prop_assert_eq!(root.host(), uniform.host());
            prop_assert_eq!(Uniform::parse(uniform.entity()).expect("and so is the entity").nick(), uniform.nick());
        }
    }
}

#[test]
fn keyword_vectors_hold() {
    let cases = vectors::read("keywords.txt", &["inherits", "matches"]);
    for case in &cases {
        let evaluate =
            |name: &str, function: fn(&[u8], &[u8]) -> Result<bool, keyword::InvalidKeyword>| {
                let (first, second) = case.setting(name)?.split_once(' ').expect("two words");
                let word = |word: &str| {
                    if word == "~" {
                        Vec::new()
                    } else {
                        word.as_bytes().to_vec()
                    }
                };
                Some(function(&word(first), &word(second)))
            };
        let result = evaluate("inherits", keyword::inherits)
            .or_else(|| evaluate("matches", keyword::matches));
        let text = match result.expect("a function") {
            Ok(result) => result.to_string(),
            Err(_) => "invalid".to_string(),
        };
        case.check(&text, "evaluated");
    }
    print_count("keywords.txt", &cases);
}

#[test]
fn name_vectors_hold() {
    let cases = vectors::read("names.txt", &[]);
    for case in &cases {
        let name = case.title.rsplit(' ').next().unwrap_or_default().as_bytes();
        let routing = RoutingVariable::from_name(name).map_or(0, RoutingVariable::number);
        let ty = VarType::from_name(name).map_or(0, VarType::number);
        let (number, family, flags) = Method::from_name(name).map_or((0, 0, 0), |method| {
            (method.number, method.family.number(), method.flags().bits())
        });
        let list = u8::from(is_list(name));
        let text = format!(
            "routing\t{routing}\ntype\t{ty}\nlist\t{list}\nmethod\t{number}\t{family}\t{flags}\n"
        );
        case.check(&text, "looked up");
    }
    print_count("names.txt", &cases);
}

#[test]
fn packet_id_vectors_hold_both_ways() {
    let cases = vectors::read("packet-ids.txt", &["parts", "in"]);
    for case in &cases {
        let Some(parts) = case.setting("parts") else {
            let input = case.bytes("in").expect("input");
            assert!(PacketId::parse(&input).is_err(), "{}", case.title);
            continue;
        };
        let parts: Vec<&[u8]> = parts
            .split(' ')
            .map(|part| if part == "-" { b"" } else { part.as_bytes() })
            .collect();
        let [context, source, target, counter, fragment] = parts[..] else {
            panic!("five parts")
        };
        let id = PacketId {
            context,
            source,
            target,
            counter,
            fragment,
        };
        let mut out = [0; 200];
        let size = Renderer::packet_id(&id, &mut out).expect("rendered");
        assert_eq!(Renderer::packet_id_size(&id), Ok(size as u64));
        case.check(
            &format!("id\t{}\n", String::from_utf8_lossy(&out[..size])),
            "rendered",
        );
        assert_eq!(PacketId::parse(&out[..size]), Ok(id));
    }
    print_count("packet-ids.txt", &cases);
}
