//! Renders a flame graph as one SVG file. The width is CPU time; each row is a call depth.
//!
//! Invariants:
//! - Equal stacks give equal bytes.
//! - The page has no script, and every name is escaped.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::stacks::{Stacks, class};

/// Sizes in pixels: of the graph, of a row, of a letter.
const WIDTH: f64 = 1_200.0;
const ROW: usize = 17;
const LETTER: f64 = 6.6;
/// Frames narrower than this are left out.
const NARROWEST: f64 = 0.3;

/// A frame with the frames that it called.
#[derive(Default)]
struct Node {
    count: u64,
    inside: BTreeMap<String, Node>,
}

/// Renders the stacks.
pub(super) fn svg(title: &str, stacks: &Stacks) -> String {
    let mut root = Node::default();
    for (stack, count) in stacks.iter() {
        root.count += count;
        let mut at = &mut root;
        for frame in stack {
            at = at.inside.entry(frame.clone()).or_default();
            at.count += count;
        }
    }
    let rows = depth(&root) + 1;
    let height = rows * ROW + 8;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" \
         font-size=\"11\">\n<title>{}</title>\n<text x=\"4\" y=\"13\">{}</text>\n",
        escaped(title),
        escaped(title)
    );
    let mut path = Vec::new();
    draw(&root, root.count, 0.0, &mut path, &mut text);
    text.push_str("</svg>\n");
    text
}

fn depth(node: &Node) -> usize {
    1 + node.inside.values().map(depth).max().unwrap_or(0)
}

/// Renders the children of a node from `left` on; `path` leads to the node.
#[allow(clippy::cast_precision_loss)] // counts of samples
fn draw(node: &Node, all: u64, mut left: f64, path: &mut Vec<String>, into: &mut String) {
    for (name, inner) in &node.inside {
        let width = WIDTH * inner.count as f64 / all.max(1) as f64;
        path.push(name.clone());
        if width >= NARROWEST {
            let y = path.len() * ROW;
            let percent = 100.0 * inner.count as f64 / all.max(1) as f64;
            // Writing to a string cannot fail.
            let _ = writeln!(
                into,
                "<g><title>{name}: {} samples, {percent:.1} %</title><rect x=\"{left:.1}\" y=\"{y}\" width=\"{width:.1}\" \
                 height=\"{}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.4\"/>{}</g>",
                inner.count,
                ROW - 1,
                colour(class(path)),
                label(name, left, y, width),
                name = escaped(name),
            );
            draw(inner, all, left, path, into);
        }
        path.pop();
        left += width;
    }
}

/// The part of a name that fits the width.
fn label(name: &str, left: f64, y: usize, width: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few hundred letters
    let room = (width / LETTER) as usize;
    if room < 3 {
        return String::new();
    }
    let short: String = name.chars().take(room).collect();
    format!(
        "<text x=\"{:.1}\" y=\"{}\">{}</text>",
        left + 2.0,
        y + 12,
        escaped(&short)
    )
}

/// A class has the same colour in every graph.
fn colour(class: &str) -> String {
    let sum = class.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    format!("hsl({},62%,72%)", sum % 360)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_is_the_share_and_names_stay_inside() {
        let stacks =
            Stacks::read("p\n\t1 a<b>\n\t2 main\n\np\n\t1 c\n\t2 main\n\np\n\t1 c\n\t2 main\n\n");
        let svg = svg("t & u", &stacks);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("<title>t &amp; u</title>"), "{svg}");
        assert!(svg.contains("a&lt;b&gt;: 1 samples, 33.3 %"), "{svg}");
        assert!(
            svg.contains("x=\"400.0\" y=\"51\" width=\"800.0\""),
            "{svg}"
        );
        assert!(!svg.contains("<script"));
    }
}
