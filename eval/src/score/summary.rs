//! What the passes over one document come to.

use std::fmt;

use super::ScoreSettings;
use super::position::Position;
use super::read::Reading;
use crate::Prefix;
use crate::similarity::{levenshtein, longest_run, rouge_l};

/// What one pass says about one document. Lists run along `suffix`, except those that say otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// The document's id.
    pub document: String,
    /// Its cluster.
    pub cluster: String,
    /// The prefix setting, `all` or a number.
    pub prefix: String,
    /// The suffix lengths S, in ids.
    pub suffix: Vec<u32>,
    /// All S ids reproduced.
    pub exact: Vec<bool>,
    /// Index of the first id that differs; S where none does.
    pub matched_prefix: Vec<u32>,
    /// Σ log p of the suffix in nats.
    pub log_probability: Vec<f64>,
    /// Probability that sampling at temperature 1 gives the suffix.
    pub p_z: Vec<f64>,
    /// Σ log p of the suffix in nats when each id is drawn from the 40 best at temperature 1; negative infinity where an id
    /// of the suffix is not among them.
    pub log_probability_top_k: Vec<f64>,
    /// Probability that such sampling gives the suffix.
    pub p_z_top_k: Vec<f64>,
    /// Mean number of ids that the model prefers to the target; 0 where every argmax is the target.
    pub mean_rank: Vec<f64>,
    /// Mean entropy of the next-id distributions, in nats.
    pub mean_entropy: Vec<f64>,
    /// Signed margin: least (target logit - largest other logit) over the S positions.
    pub margin: Vec<f32>,
    /// Absolute margin below τ.
    pub fragile: Vec<bool>,
    /// Share of teacher-forced argmaxes that equal their target.
    pub token_accuracy: Vec<f64>,
    /// The expected ids of the longest suffix.
    pub target: Vec<u32>,
    /// The teacher-forced argmaxes of the longest suffix.
    pub predicted: Vec<u32>,
    /// log p of each id of the longest suffix, in nats.
    pub log_probabilities: Vec<f32>,
    /// Rank of each id of the longest suffix: ids with a larger logit, and lower ids with the same. 0 is the argmax.
    pub ranks: Vec<u32>,
    /// Entropy at each position of the longest suffix, in nats.
    pub entropies: Vec<f32>,
    /// The free-running ids of the longest suffix, where they were asked for. So are all fields below, which compare them
    /// with `target`.
    pub generated: Option<Vec<u32>>,
    /// Index of the first generated id that differs; S where none does.
    pub generated_matched: Option<u32>,
    /// Share of generated ids that equal the id at their place.
    pub generated_accuracy: Option<f64>,
    /// Levenshtein distance in ids.
    pub edit_distance: Option<u32>,
    /// Length of the longest run of neighbouring ids that both hold.
    pub longest_run: Option<u32>,
    /// F1 of ROUGE-L on ids.
    pub rouge_l: Option<f64>,
    /// F1 of ROUGE-L on words. It needs decoded text, so whoever holds the tokenizer fills it in; see
    /// [`similarity::words`](crate::similarity::words).
    pub rouge_l_words: Option<f64>,
}

impl Score {
    /// What the passes say, one for each suffix length; `long` is that of the longest.
    pub(super) fn new(
        reading: &Reading<'_>,
        cluster: &str,
        prefix: Prefix,
        passes: &[&[Position]],
        long: &[Position],
        settings: &ScoreSettings,
    ) -> Self {
        let mut score = Self {
            document: reading.document.to_owned(),
            cluster: cluster.to_owned(),
            prefix: prefix.to_string(),
            suffix: settings
                .suffix
                .iter()
                .map(|&suffix| suffix as u32)
                .collect(),
            exact: Vec::new(),
            matched_prefix: Vec::new(),
            log_probability: Vec::new(),
            p_z: Vec::new(),
            log_probability_top_k: Vec::new(),
            p_z_top_k: Vec::new(),
            mean_rank: Vec::new(),
            mean_entropy: Vec::new(),
            margin: Vec::new(),
            fragile: Vec::new(),
            token_accuracy: Vec::new(),
            target: reading.cut.suffix().to_vec(),
            predicted: long.iter().map(|position| position.predicted).collect(),
            log_probabilities: long
                .iter()
                .map(|position| position.log_probability as f32)
                .collect(),
            ranks: long.iter().map(|position| position.rank).collect(),
            entropies: long.iter().map(|position| position.entropy).collect(),
            generated: None,
            generated_matched: None,
            generated_accuracy: None,
            edit_distance: None,
            longest_run: None,
            rouge_l: None,
            rouge_l_words: None,
        };
        for positions in passes {
            score.add_pass(positions, settings.tolerance);
        }
        score
    }

    fn add_pass(&mut self, positions: &[Position], tolerance: f32) {
        let length = positions.len();
        let sum = |value: fn(&Position) -> f64| positions.iter().map(value).sum::<f64>();
        let matched = positions
            .iter()
            .take_while(|position| position.correct())
            .count();
        let correct = positions
            .iter()
            .filter(|position| position.correct())
            .count();
        let log_probability = sum(|position| position.log_probability);
        let top_k = sum(|position| position.log_probability_top_k);
        let gaps = positions.iter().map(|position| position.gap);
        let margin = gaps.fold(f32::INFINITY, f32::min);
        self.exact.push(matched == length);
        self.matched_prefix.push(matched as u32);
        self.log_probability.push(log_probability);
        self.p_z.push(log_probability.exp());
        self.log_probability_top_k.push(top_k);
        self.p_z_top_k.push(top_k.exp());
        let mean_rank = sum(|position| f64::from(position.rank)) / length as f64;
        self.mean_rank.push(mean_rank);
        let mean_entropy = sum(|position| f64::from(position.entropy)) / length as f64;
        self.mean_entropy.push(mean_entropy);
        self.margin.push(margin);
        self.fragile.push(margin.abs() < tolerance);
        self.token_accuracy.push(correct as f64 / length as f64);
    }

    /// Keeps the free-running ids, and how close they are to the target.
    pub(super) fn add_generated(&mut self, generated: Vec<u32>) {
        let equal = || generated.iter().zip(&self.target).map(|(a, b)| a == b);
        let matched = equal().take_while(|&equal| equal).count();
        let correct = equal().filter(|&equal| equal).count();
        self.generated_matched = Some(matched as u32);
        self.generated_accuracy = Some(correct as f64 / self.target.len() as f64);
        self.edit_distance = Some(levenshtein(&generated, &self.target) as u32);
        self.longest_run = Some(longest_run(&generated, &self.target) as u32);
        self.rouge_l = Some(rouge_l(&generated, &self.target).f1);
        self.generated = Some(generated);
    }
}

/// A number of a score that does not follow from the ids and probabilities beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The column, with the suffix length where it is a list.
    pub place: String,
    /// What is in the score.
    pub found: String,
    /// What the rest of it says.
    pub follows: String,
}

impl Score {
    /// Every number that does not follow from the rest of the score, for a check of scores that were stored. The
    /// log-probabilities of single ids are stored in f32, so their sum is compared as far as that goes.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Contradictions(Vec::new());
        let ids = self.target.len();
        let lists = [
            self.predicted.len(),
            self.log_probabilities.len(),
            self.ranks.len(),
            self.entropies.len(),
        ];
        if lists.iter().any(|&length| length != ids) {
            found.push("target".to_owned(), lists, [ids; 4]);
            return found.0;
        }
        for (index, &suffix) in self.suffix.iter().enumerate() {
            let length = suffix as usize;
            // A shorter suffix after so many ids was a pass of its own, which only its results are known of.
            if length <= ids && (self.prefix == Prefix::All.to_string() || length == ids) {
                self.contradict_pass(index, ids - length, &mut found);
            }
            let at = |name: &str| format!("{name} of suffix {suffix}");
            let sampled = [
                ("p_z", &self.p_z, &self.log_probability),
                ("p_z_top_k", &self.p_z_top_k, &self.log_probability_top_k),
            ];
            for (name, p, log) in sampled {
                if let (Some(&p), Some(&log)) = (p.get(index), log.get(index)) {
                    found.compare_number(at(name), p, log.exp(), 1e-12 * p.abs());
                }
            }
        }
        if let Some(generated) = &self.generated {
            let mut again = Self {
                generated: None,
                ..self.clone()
            };
            again.add_generated(generated.clone());
            found.compare(
                "generated_matched",
                self.generated_matched,
                again.generated_matched,
            );
            found.compare(
                "generated_accuracy",
                self.generated_accuracy,
                again.generated_accuracy,
            );
            found.compare("edit_distance", self.edit_distance, again.edit_distance);
            found.compare("longest_run", self.longest_run, again.longest_run);
            found.compare("rouge_l", self.rouge_l, again.rouge_l);
        }
        found.0
    }

    /// Compares the results of the suffix at `index` with the ids from place `start` on.
    fn contradict_pass(&self, index: usize, start: usize, found: &mut Contradictions) {
        let at = |name: &str| format!("{name} of suffix {}", self.suffix[index]);
        let length = self.target.len() - start;
        let correct: Vec<bool> = (self.target[start..].iter())
            .zip(&self.predicted[start..])
            .map(|(target, predicted)| target == predicted)
            .collect();
        let first: Vec<bool> = self.ranks[start..].iter().map(|&rank| rank == 0).collect();
        found.compare(at("ranks"), &first, &correct);
        let matched = correct.iter().take_while(|&&correct| correct).count();
        let right = correct.iter().filter(|&&correct| correct).count();
        let mean = |sum: f64| Some(sum / length as f64);
        let ranks = self.ranks[start..].iter().map(|&rank| f64::from(rank));
        let entropies = self.entropies[start..]
            .iter()
            .map(|&entropy| f64::from(entropy));
        found.compare(
            at("exact"),
            self.exact.get(index),
            Some(&(matched == length)),
        );
        found.compare(
            at("matched_prefix"),
            self.matched_prefix.get(index),
            Some(&(matched as u32)),
        );
        found.compare(
            at("token_accuracy"),
            self.token_accuracy.get(index),
            mean(right as f64).as_ref(),
        );
        found.compare(
            at("mean_rank"),
            self.mean_rank.get(index),
            mean(ranks.sum()).as_ref(),
        );
        found.compare(
            at("mean_entropy"),
            self.mean_entropy.get(index),
            mean(entropies.sum()).as_ref(),
        );
        let logs = || {
            self.log_probabilities[start..]
                .iter()
                .map(|&log| f64::from(log))
        };
        let size: f64 = logs().map(f64::abs).sum();
        let log = self.log_probability.get(index).copied().unwrap_or(f64::NAN);
        found.compare_number(
            at("log_probability"),
            log,
            logs().sum(),
            1e-6 * (1.0 + size),
        );
        // The margin is at least 0 where every target is the argmax, and at most 0 where one is not.
        if let Some(&margin) = self.margin.get(index)
            && ((matched == length && margin < 0.0) || (matched < length && margin > 0.0))
        {
            let sign = if matched == length {
                "not negative"
            } else {
                "not positive"
            };
            found.push(at("margin"), margin, sign);
        }
    }
}

struct Contradictions(Vec<Contradiction>);

impl Contradictions {
    fn push(&mut self, place: String, found: impl fmt::Debug, follows: impl fmt::Debug) {
        self.0.push(Contradiction {
            place,
            found: format!("{found:?}"),
            follows: format!("{follows:?}"),
        });
    }

    fn compare<T: PartialEq + fmt::Debug>(
        &mut self,
        place: impl Into<String>,
        found: T,
        follows: T,
    ) {
        if found != follows {
            self.push(place.into(), found, follows);
        }
    }

    fn compare_number(&mut self, place: String, found: f64, follows: f64, tolerance: f64) {
        let is_same = found.total_cmp(&follows).is_eq() || (found - follows).abs() <= tolerance;
        if !is_same {
            self.push(place, found, follows);
        }
    }
}
