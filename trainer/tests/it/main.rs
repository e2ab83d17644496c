//! Integration tests of the trainer.
#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test that unwraps a failure fails, and much here must be equal to the last bit"
)]

mod certify;
mod checkpoint;
mod engine;
mod export;
mod faults;
mod fixture;
mod goldfish;
mod grids;
mod kernels;
mod llama;
mod optim;
mod overlap;
mod parity;
mod published;
mod random;
mod reshard;
mod schemes;
mod tiny;
mod volumes;
