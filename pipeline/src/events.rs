//! What a run says while it works: a bar on a terminal, plain lines elsewhere, or JSON lines.
//!
//! Progress goes to the standard error, JSON events and results to the standard output. A reader
//! that closes the pipe early ends the output, not the run.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

/// Pause between two plain lines of one stage.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Where events go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A bar for the running stage.
    Bars,
    /// One line now and then.
    Lines,
    /// One JSON object a line on the standard output.
    Json,
    /// Nothing: another process tells.
    Silent,
}

impl Style {
    /// JSON if asked for, bars on a terminal, else lines.
    pub fn choose(json: bool) -> Self {
        if json {
            Self::Json
        } else if std::io::stderr().is_terminal() {
            Self::Bars
        } else {
            Self::Lines
        }
    }
}

/// The running stage, as far as it is shown.
struct Current {
    label: String,
    unit: &'static str,
    total: u64,
    done: u64,
    /// Done before this process, by an earlier attempt.
    earlier: u64,
    started: Instant,
    shown: Instant,
    bar: Option<ProgressBar>,
}

/// The teller of a run.
pub struct Events {
    style: Style,
    current: Mutex<Option<Current>>,
}

impl Events {
    /// A teller in one style.
    pub fn new(style: Style) -> Self {
        Self {
            style,
            current: Mutex::new(None),
        }
    }

    /// Whether events are for machines.
    pub fn is_json(&self) -> bool {
        self.style == Style::Json
    }

    /// One event with its fields, for machines, and its sentence, for people.
    pub fn tell(&self, event: &str, fields: Value, sentence: &str) {
        match self.style {
            Style::Json => {
                let mut line = json!({ "event": event });
                if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
                    line.extend(fields);
                }
                print(&line.to_string());
            }
            Style::Silent => {}
            Style::Bars | Style::Lines => {
                let current = self.current();
                match current.as_ref().and_then(|current| current.bar.as_ref()) {
                    Some(bar) => bar.suspend(|| log(sentence)),
                    None => log(sentence),
                }
            }
        }
    }

    /// A stage says how much it has to do; `done` of it was done by an earlier attempt.
    pub fn start(&self, label: &str, unit: &'static str, total: u64, done: u64) {
        let bar = (self.style == Style::Bars).then(|| {
            let bar = ProgressBar::new(total).with_position(done);
            if let Ok(style) = ProgressStyle::with_template(
                "{prefix} [{bar:30}] {pos}/{len} {msg} {per_sec}, {eta} left",
            ) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(label.to_owned());
            bar.set_message(unit);
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        *self.current() = Some(Current {
            label: label.to_owned(),
            unit,
            total,
            done,
            earlier: done,
            started: now,
            shown: now,
            bar,
        });
    }

    /// `done` of the stage's total is done.
    pub fn progress(&self, done: u64, note: &str) {
        let mut guard = self.current();
        let Some(current) = guard.as_mut() else {
            return;
        };
        current.done = done;
        if let Some(bar) = &current.bar {
            bar.set_position(done);
            bar.set_message(format!("{} {note}", current.unit));
            return;
        }
        if self.style == Style::Silent || current.shown.elapsed() < LINE_EVERY {
            return;
        }
        current.shown = Instant::now();
        let rate = (done - current.earlier) as f64 / current.started.elapsed().as_secs_f64();
        let left = (current.total.saturating_sub(done)) as f64 / rate.max(1e-9);
        if self.style == Style::Json {
            let line = json!({
                "event": "progress", "stage": current.label, "unit": current.unit,
                "done": done, "total": current.total, "per_second": rate, "seconds_left": left,
            });
            print(&line.to_string());
        } else {
            log(&format!(
                "{}: {done} of {} {} ({rate:.1}/s, {left:.0} s left) {note}",
                current.label, current.total, current.unit
            ));
        }
    }

    /// The stage is over.
    pub fn end(&self) {
        if let Some(bar) = self.current().take().and_then(|current| current.bar) {
            bar.finish_and_clear();
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        // What is behind the lock is only shown; a panic of another thread doesn't spoil it.
        self.current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Writes a line of results; a closed pipe is no error, as nobody is there to be told.
pub fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn log(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
