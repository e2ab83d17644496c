//! The command as users have it: the built binary on small studies in folders of their own.

mod audit;
mod background;
mod bench;
mod created_after;
mod export;
mod grid;
mod keys;
mod ladder;
mod ledger;
mod merge;
mod planted;
mod power;
mod probes;
mod report;
mod resume;
mod run;
mod sources;
mod support;
mod tables;
mod verify;
