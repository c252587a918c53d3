//! Addresses.

use weir::ErrorCode;
use weir_psyc::{AnyUniform, Uniform};

use super::raw::PsycUniform;
use super::{malformed, optional, slice};
use crate::error::{Fault, Kind};
use crate::handle::{Caller, zeroed};
use crate::raw::Slice;

/// `WEIR_PSYC_FOREIGN`.
const FOREIGN: u32 = 6;
/// `WEIR_PSYC_UNREACHABLE`.
const UNREACHABLE: u32 = 1;

pub(super) fn parse(
    c: &Caller,
    bytes: Slice,
    any: u32,
    out: *mut PsycUniform,
) -> Result<Kind, Fault> {
    c.info_size(out)?;
    let bytes = c.bytes(bytes)?;
    let parsed = match any {
        0 => Uniform::parse(bytes).map(AnyUniform::Psyc),
        1 => Uniform::parse_any(bytes),
        _ => return Err(Fault::new(ErrorCode::BadOption, "any scheme is 0 or 1")),
    };
    let parsed = parsed.map_err(|error| {
        let detail = u32::from(error.number());
        malformed("the address is malformed", detail, u64::MAX)
    })?;
    let mut found = zeroed::<PsycUniform>();
    match parsed {
        AnyUniform::Psyc(uniform) => {
            found.kind = u32::from(uniform.kind().number());
            found.port_number = uniform.port_number().map_or(0, u32::from);
            if uniform.is_unreachable() {
                found.flags = UNREACHABLE;
            }
            let [
                scheme,
                slashes,
                host,
                port,
                transport,
                slash,
                resource,
                channel,
                host_port,
                root,
                entity,
                path,
                body,
                full,
                nick,
            ] = uniform.parts().map(|(_, part)| optional(part));
            found.scheme = scheme;
            found.slashes = slashes;
            found.host = host;
            found.port = port;
            found.transport = transport;
            found.slash = slash;
            found.resource = resource;
            found.channel = channel;
            found.host_port = host_port;
            found.root = root;
            found.entity = entity;
            found.path = path;
            found.body = body;
            found.full = full;
            found.nick = nick;
        }
        AnyUniform::Other { scheme, rest } => {
            found.kind = FOREIGN;
            found.scheme = slice(scheme);
            found.body = slice(rest);
            found.full = slice(bytes);
        }
    }
    c.write_info(out, &found)?;
    Ok(Kind::Ok)
}
