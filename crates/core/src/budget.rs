//! Budgets: what a session's requests may cost, use and last, judged by its log alone.
//!
//! [`Ledger`] is a part of the session's fold. It keeps what the sums leave out: requests whose cost nobody knows. They
//! are never taken as free. A request whose end was lost (a crash, a broken connection) counts as the most it can have
//! taken, recorded before it was sent, even if it had reported some tokens: those are a lower bound. One whose price was
//! unknown is priced by what is known now, or refuses to be counted; so does one in which the provider ran tools of its
//! own, whose fees no price of tokens tells. [`Ledger::check`] says whether one more request may be sent; it is asked at every boundary, before a retry
//! and before a compaction's request, so a limit is crossed by the request under way at most.

use crate::error::{ProviderError, SessionError};
use crate::event::EventBody;
use crate::event::body::{AtMost, Limits};
use crate::model::ModelRef;
use crate::price::{Price, dollars};
use crate::provider::Finish;
use crate::session::Totals;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The word of [`SessionError::kind`] for every end by a budget.
pub const KIND: &str = "budget";

/// Requests whose cost the log does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Requests whose usage was lost, but not what they can have taken at most.
    lost: u64,
    /// The most tokens those can have taken.
    lost_tokens: u64,
    /// The most they can have cost, in microdollars.
    lost_cost: u64,
    /// Requests whose usage was lost, and of which nobody can say what they took.
    boundless: u64,
    /// Requests in which the provider ran tools for fees nobody knows.
    #[serde(default, skip_serializing_if = "is_zero")]
    feeless: u64,
    /// Usage without a price, by model.
    unpriced: Vec<Unpriced>,
    /// The request under way. None at a boundary, where checkpoints are made.
    #[serde(skip)]
    open: Option<Open>,
}

/// Usage of one model for which no price was known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Unpriced {
    model: ModelRef,
    requests: u64,
    prompt: u64,
    output: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Open {
    model: ModelRef,
    at_most: Option<AtMost>,
    /// The provider ran a tool of its own.
    hosted: bool,
}

/// What is known of a request that is over.
struct End<'a> {
    usage: Option<&'a Usage>,
    cost: Option<u64>,
    /// The answer was heard to its end, so its usage is all of it.
    whole: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Why no further request may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverBudget {
    /// The limit on cost is reached.
    Cost {
        /// What is known to be spent, in microdollars.
        spent: u64,
        /// The most that requests of unknown cost can have added.
        unknown: u64,
        /// Such requests.
        requests: u64,
        /// The limit.
        limit: u64,
    },
    /// There is a limit on cost, and the model's price is unknown.
    NoPrice {
        /// The model.
        model: ModelRef,
    },
    /// There is a limit on cost, and what some requests cost cannot be known any more.
    NoCost {
        /// Such requests.
        requests: u64,
    },
    /// There is a limit on cost, and the model's provider may run tools of its own, for fees that are not known.
    Fees {
        /// The model.
        model: ModelRef,
    },
    /// The limit on tokens is reached.
    Tokens {
        /// Tokens used.
        used: u64,
        /// The most that requests of unknown usage can have added.
        unknown: u64,
        /// Such requests.
        requests: u64,
        /// The limit.
        limit: u64,
    },
    /// There is a limit on tokens, and what some requests used cannot be known any more.
    NoUsage {
        /// Such requests.
        requests: u64,
    },
    /// The execution took longer than it may.
    Wall {
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
}

impl Ledger {
    /// Takes an event into account. Total.
    pub(crate) fn apply(&mut self, body: &EventBody) {
        match body {
            EventBody::AttemptStarted(e) => self.begin(&e.model, e.at_most),
            EventBody::CompactionStarted(e) => self.begin(&e.model, e.at_most),
            EventBody::ToolCalled(e) if e.executed => {
                if let Some(open) = &mut self.open {
                    open.hosted = true;
                }
            }
            EventBody::AttemptEnded(e) => self.end(End {
                usage: e.usage.as_ref(),
                cost: e.cost,
                whole: e.finish != Finish::Error,
            }),
            EventBody::CompactionEnded(e) => self.end(End {
                usage: e.usage.as_ref(),
                cost: e.cost,
                whole: true,
            }),
            EventBody::CompactionFailed(e) => self.end(End {
                usage: e.usage.as_ref(),
                cost: e.cost,
                whole: false,
            }),
            EventBody::SessionForked(_) => {
                // A request that was open where the parent was cut is the parent's.
                self.open = None;
            }
            _ => {}
        }
    }

    fn begin(&mut self, model: &ModelRef, at_most: Option<AtMost>) {
        let model = model.clone();
        self.open = Some(Open {
            model,
            at_most,
            hosted: false,
        });
    }

    fn end(&mut self, end: End<'_>) {
        let open = self.open.take();
        if end.usage.is_some() && end.cost.is_some() {
            return;
        }
        let Some(open) = open else {
            self.boundless += 1;
            return;
        };
        match (end.usage, open.at_most) {
            (Some(_), _) if end.whole && open.hosted => self.feeless += 1,
            (Some(usage), _) if end.whole => {
                self.without_price(open.model, usage.prompt(), usage.output);
            }
            (heard, Some(most)) => self.lose(open.model, most, heard),
            (_, None) => self.boundless += 1,
        }
    }

    /// Counts a request whose end was lost as the most it can have taken, or as what it is known to have taken if that
    /// is more. `heard` is in the session's sums already.
    fn lose(&mut self, model: ModelRef, most: AtMost, heard: Option<&Usage>) {
        self.lost += 1;
        let heard = heard.copied().unwrap_or_default();
        let prompt = most.prompt.max(heard.prompt());
        let output = most.output.max(heard.output);
        let unheard = prompt.saturating_add(output).saturating_sub(heard.total());
        self.lost_tokens = self.lost_tokens.saturating_add(unheard);
        let within = prompt == most.prompt && output == most.output;
        match most.cost.filter(|_| within) {
            Some(cost) => self.lost_cost = self.lost_cost.saturating_add(cost),
            None => self.without_price(model, prompt, output),
        }
    }

    fn without_price(&mut self, model: ModelRef, prompt: u64, output: u64) {
        let index = match self.unpriced.iter().position(|u| u.model == model) {
            Some(index) => index,
            None => {
                self.unpriced.push(Unpriced {
                    model,
                    requests: 0,
                    prompt: 0,
                    output: 0,
                });
                self.unpriced.len() - 1
            }
        };
        let entry = &mut self.unpriced[index];
        entry.requests += 1;
        entry.prompt = entry.prompt.saturating_add(prompt);
        entry.output = entry.output.saturating_add(output);
    }

    /// May one more request be sent to `model`? `price` says what is known now of a model's price.
    ///
    /// # Errors
    /// The limit that is reached, or that cannot be kept because something is unknown.
    pub fn check(
        &self,
        limits: &Limits,
        totals: &Totals,
        model: &ModelRef,
        price: impl Fn(&ModelRef) -> Option<Price>,
    ) -> Result<(), OverBudget> {
        if let Some(limit) = limits.max_tokens {
            self.check_tokens(limit, totals)?;
        }
        match limits.max_cost {
            Some(limit) => self.check_cost(limit, totals, model, price),
            None => Ok(()),
        }
    }

    fn check_tokens(&self, limit: u64, totals: &Totals) -> Result<(), OverBudget> {
        let used = totals.usage.total();
        if used.saturating_add(self.lost_tokens) >= limit {
            return Err(OverBudget::Tokens {
                used,
                unknown: self.lost_tokens,
                requests: self.lost,
                limit,
            });
        }
        if self.boundless > 0 {
            let requests = self.boundless;
            return Err(OverBudget::NoUsage { requests });
        }
        Ok(())
    }

    fn check_cost(
        &self,
        limit: u64,
        totals: &Totals,
        model: &ModelRef,
        price: impl Fn(&ModelRef) -> Option<Price>,
    ) -> Result<(), OverBudget> {
        let mut unknown = self.lost_cost;
        let mut requests = self.lost;
        let mut priceless = None;
        for entry in &self.unpriced {
            match price(&entry.model) {
                Some(price) => {
                    let most = price.at_most(entry.prompt, entry.output);
                    unknown = unknown.saturating_add(most);
                    requests += entry.requests;
                }
                None => priceless = Some(entry.model.clone()),
            }
        }
        if totals.cost.saturating_add(unknown) >= limit {
            return Err(OverBudget::Cost {
                spent: totals.cost,
                unknown,
                requests,
                limit,
            });
        }
        let requests = self.boundless.saturating_add(self.feeless);
        if requests > 0 {
            return Err(OverBudget::NoCost { requests });
        }
        let priceless = priceless.or_else(|| price(model).is_none().then(|| model.clone()));
        match priceless {
            Some(model) => Err(OverBudget::NoPrice { model }),
            None => Ok(()),
        }
    }
}

/// Milliseconds as people say them: `90 s`, `15 min`, `2 h`.
pub fn duration_words(ms: u64) -> String {
    match ms {
        0 => "0 s".to_owned(),
        ms if ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        ms if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        ms if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost {
                spent,
                unknown,
                requests,
                limit,
            } => {
                write!(
                    f,
                    "The limit on cost is reached: {} of {} are spent",
                    dollars(*spent),
                    dollars(*limit)
                )?;
                if *unknown > 0 {
                    write!(
                        f,
                        ", and up to {} more by {} whose end was lost or had no price then",
                        dollars(*unknown),
                        requests_words(*requests)
                    )?;
                }
                f.write_str(". Allow more with --max-cost; then another prompt goes on.")
            }
            Self::NoPrice { model } => write!(
                f,
                "There is a limit on cost, and the price of {model} is not known, so it cannot be kept. Give the \
                 model a price in the configuration (`price = {{ input = …, output = … }}`), get the newest table with \
                 `tenure models --refresh`, or limit tokens instead (--max-cost none --max-tokens N)."
            ),
            Self::NoCost { requests } => write!(
                f,
                "There is a limit on cost, and what {} of this session cost can no longer be known, so it cannot be \
                 kept. Limit tokens or time instead (--max-cost none), or go on in a new session.",
                requests_words(*requests)
            ),
            Self::Fees { model } => write!(
                f,
                "There is a limit on cost, and {model} may use tools that its provider runs for fees of their own, \
                 which are not known, so it cannot be kept. Take `hosted` out of the model's configuration, or \
                 limit tokens or time instead (--max-cost none --max-tokens N)."
            ),
            Self::Tokens {
                used,
                unknown,
                requests,
                limit,
            } => {
                write!(
                    f,
                    "The limit on tokens is reached: {used} of {limit} are used"
                )?;
                if *unknown > 0 {
                    write!(
                        f,
                        ", and up to {unknown} more by {} whose end was lost",
                        requests_words(*requests)
                    )?;
                }
                f.write_str(". Allow more with --max-tokens; then another prompt goes on.")
            }
            Self::NoUsage { requests } => write!(
                f,
                "There is a limit on tokens, and what {} of this session used can no longer be known, so it cannot be \
                 kept. Lift it (--max-tokens none), or go on in a new session.",
                requests_words(*requests)
            ),
            Self::Wall { limit_ms } => write!(
                f,
                "The limit on time is reached: this turn has lasted {}. Allow more with --max-time; another prompt \
                 goes on.",
                duration_words(*limit_ms)
            ),
        }
    }
}

fn requests_words(count: u64) -> String {
    if count == 1 {
        "one request".to_owned()
    } else {
        format!("{count} requests")
    }
}

impl From<&OverBudget> for SessionError {
    fn from(over: &OverBudget) -> Self {
        Self::new(KIND, over.to_string())
    }
}

/// Usage and cost of a request that ended with `error` before any usage was heard: nothing where the provider is known
/// to have done nothing, unknown otherwise.
pub fn refused(error: &ProviderError) -> Option<(Usage, u64)> {
    error.unbilled().then(|| (Usage::default(), 0))
}

#[cfg(test)]
mod tests;
