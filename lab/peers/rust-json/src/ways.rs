//! The methods to find items and keys, and the lower bounds.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use simd_json::prelude::{ValueAsArray as _, ValueAsScalar as _, ValueObjectAccess as _};
use sonic_rs::JsonValueTrait as _;
use weir_scan::{Items, Level, Path, Plan, Shape, Simd, Tag, scan_into};

/// The possible arguments.
pub(crate) const NAMES: [&str; 17] = [
    "copy",
    "copy-fresh",
    "quotes",
    "utf8",
    "scan",
    "scan-strict",
    "scan-avx512bw",
    "scan-avx2",
    "scan-sse4.2",
    "scan-scalar",
    "serde-raw",
    "serde-value",
    "simd-json-tape",
    "simd-json-tree",
    "serde-ignored",
    "sonic",
    "sonic-unchecked",
];

/// A measured method.
pub(crate) enum Way {
    Copy(Vec<u8>),
    CopyFresh,
    SimdTape(Vec<u8>, Box<simd_json::Buffers>),
    SimdTree(Vec<u8>),
    Quotes,
    Utf8,
    Scan(Box<Plan>, Items),
    SerdeRaw,
    SerdeValue,
    SerdeIgnored,
    Sonic,
    SonicUnchecked,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    order: &'a RawValue,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// The value that a touched value adds to the sum.
fn touch(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + u64::from(bytes.first().copied().unwrap_or(0))
}

fn scanner(level: Level, simd: Option<&str>) -> Option<Way> {
    let path = Path::parse("$.order").ok()?;
    let mut plan = Plan::new(Shape::Array, level, &[path]).ok()?;
    if let Some(simd) = simd {
        let simd = Simd::ALL.iter().find(|known| known.name() == simd)?;
        plan = plan.with_simd(*simd).ok()?;
    }
    Some(Way::Scan(Box::new(plan), Items::default()))
}

/// A hash of keys in their order.
pub(crate) struct Hash(pub(crate) u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub(crate) fn add(&mut self, key: &[u8]) {
        for byte in key.iter().chain(b",") {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Way {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "copy" => Self::Copy(Vec::new()),
            "copy-fresh" => Self::CopyFresh,
            "simd-json-tape" => Self::SimdTape(Vec::new(), Box::default()),
            "simd-json-tree" => Self::SimdTree(Vec::new()),
            "quotes" => Self::Quotes,
            "utf8" => Self::Utf8,
            "scan" => scanner(Level::Structural, None)?,
            "scan-strict" => scanner(Level::Strict, None)?,
            "serde-raw" => Self::SerdeRaw,
            "serde-value" => Self::SerdeValue,
            "serde-ignored" => Self::SerdeIgnored,
            "sonic" => Self::Sonic,
            "sonic-unchecked" => Self::SonicUnchecked,
            other => scanner(Level::Structural, Some(other.strip_prefix("scan-")?))?,
        })
    }

    /// One pass; the result is a sum over the found values.
    pub(crate) fn pass(&mut self, page: &[u8]) -> Option<u64> {
        let mut sum = 0_u64;
        self.visit(page, &mut |order| sum = sum.wrapping_add(touch(order)))?;
        Some(sum)
    }

    /// A hash of the keys in their order, equal for all methods that find keys.
    pub(crate) fn content(&mut self, page: &[u8]) -> Option<u64> {
        let mut hash = Hash::default();
        self.visit(page, &mut |order| hash.add(order))?;
        Some(hash.0)
    }

    fn visit(&mut self, page: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<()> {
        match self {
            Self::Copy(to) => {
                to.resize(page.len(), 0);
                to.copy_from_slice(page);
                each(to.get(..1)?);
            }
            Self::CopyFresh => each(std::hint::black_box(page.to_vec()).get(..1)?),
            // The library writes into its input, so it gets a copy.
            Self::SimdTape(room, buffers) => {
                room.clear();
                room.extend_from_slice(page);
                let tape = simd_json::to_tape_with_buffers(room, buffers).ok()?;
                let items = tape.as_value();
                for item in items.as_array()?.iter() {
                    let order = item.as_object()?.get("order")?.as_u64()?;
                    each(order.to_string().as_bytes());
                }
            }
            Self::SimdTree(room) => {
                room.clear();
                room.extend_from_slice(page);
                let items = simd_json::to_borrowed_value(room).ok()?;
                for item in items.as_array()? {
                    each(item.get("order")?.as_u64()?.to_string().as_bytes());
                }
            }
            Self::Quotes => {
                let count = memchr::memchr_iter(b'"', page).count();
                each(&count.to_le_bytes());
            }
            Self::Utf8 => each(std::str::from_utf8(page).ok()?.get(..1)?.as_bytes()),
            Self::Scan(plan, items) => {
                scan_into(page, plan, items).ok()?;
                for index in 0..items.len() {
                    let order = items.value(index, 0);
                    if order.tag == Tag::Number {
                        each(order.span.of(page));
                    }
                }
            }
            Self::SerdeRaw => {
                let items: Vec<Item<'_>> = serde_json::from_slice(page).ok()?;
                for item in &items {
                    std::hint::black_box(item.payload);
                    each(item.order.get().as_bytes());
                }
            }
            Self::SerdeValue => {
                let items: Vec<serde_json::Value> = serde_json::from_slice(page).ok()?;
                for item in &items {
                    each(item.get("order")?.as_u64()?.to_string().as_bytes());
                }
            }
            Self::SerdeIgnored => {
                let _: IgnoredAny = serde_json::from_slice(page).ok()?;
                each(&[]);
            }
            Self::Sonic => {
                for item in sonic_rs::to_array_iter(page) {
                    let item = item.ok()?;
                    let order = sonic_rs::get(item.as_raw_str(), &["order"]).ok()?;
                    each(order.is_number().then(|| order.as_raw_str())?.as_bytes());
                }
            }
            Self::SonicUnchecked => unchecked(page, each)?,
        }
        Some(())
    }
}

/// The fastest method of sonic-rs, without checks.
#[allow(
    unsafe_code,
    reason = "the peer's unchecked interface; our pages are JSON"
)]
fn unchecked(page: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<()> {
    // SAFETY: the page was made by `page::page`, which writes UTF-8 and JSON only.
    let items = unsafe { sonic_rs::to_array_iter_unchecked(page) };
    for item in items {
        let item = item.ok()?;
        // SAFETY: as above.
        let order = unsafe { sonic_rs::get_unchecked(item.as_raw_str(), &["order"]) }.ok()?;
        each(order.is_number().then(|| order.as_raw_str())?.as_bytes());
    }
    Some(())
}
