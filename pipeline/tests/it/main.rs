//! The command as users have it: the built binary on small studies in folders of their own.

mod keys;
mod report;
mod resume;
mod run;
mod support;
