//! Integration tests of the trainer.
#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test that unwraps a failure fails, and much here must be equal to the last bit"
)]

mod checkpoint;
mod engine;
mod fixture;
mod goldfish;
mod kernels;
mod llama;
mod optim;
mod parity;
mod random;
mod tiny;
