//! The encoding of batches: vectors, limits at one below, at and one above, and bytes that no
//! builder wrote.

mod broken;
mod limits;
mod text;
mod vectors;
