//! The cover problem as numbers: nodes, tensors with formats, priced choices, and rules for all of them.

use crate::CoverError;

/// Formats of a tensor, at most.
pub(crate) const MOST_FORMATS: usize = 16;

/// Index of a format in the caller's list; less than 16.
pub type FormatId = u8;

/// A value between regions.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The node that makes it; `None` for an input of the graph.
    pub producer: Option<usize>,
    /// Nodes that read it.
    pub consumers: Vec<usize>,
    /// The format in which an input of the graph arrives.
    pub arrives: Option<FormatId>,
    /// The format in which an output of the graph is wanted.
    pub wanted: Option<FormatId>,
    /// `convert[from][to]` is the price of a conversion; infinite when there is none.
    pub convert: Vec<Vec<f64>>,
}

/// One way to compute a set of nodes with one kernel.
///
/// A node of it that is read from outside is an exit. Most choices have one, their last node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Nodes in rising order; the last is an exit.
    pub nodes: Vec<usize>,
    /// Tensors read, with the format that the kernel takes.
    pub reads: Vec<(usize, FormatId)>,
    /// Tensors that the exits make, with the format that the kernel gives.
    pub writes: Vec<(usize, FormatId)>,
    /// Price; not negative.
    pub cost: f64,
    /// Whose kernel it is: an index into [`Problem::charges`].
    pub backend: usize,
}

impl Choice {
    /// The last node, which is read from outside.
    pub fn exit(&self) -> usize {
        self.nodes[self.nodes.len() - 1]
    }
}

/// A decision taken beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Index of the choice.
    pub choice: usize,
    /// Whether it must be chosen; otherwise it must not.
    pub chosen: bool,
}

/// Something of which all choices together may use only so much: error, or bytes of weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// What choices use, by their indices, each at most once; not negative.
    pub uses: Vec<(usize, f64)>,
    /// The most that the chosen ones may use together.
    pub most: f64,
}

/// Nodes are numbered in a topological order; every node is to be covered exactly once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problem {
    /// How many nodes there are.
    pub nodes: usize,
    /// Values between regions.
    pub tensors: Vec<Tensor>,
    /// What may be chosen.
    pub choices: Vec<Choice>,
    /// Whether nodes may be covered more than once and tensors made by more than one choice. A choice
    /// may then keep to itself what is also read from outside.
    pub recompute: bool,
    /// What each backend costs once if any choice of it is chosen; nothing beyond the end.
    pub charges: Vec<f64>,
    /// Decisions taken beforehand.
    pub pins: Vec<Pin>,
    /// Limits on the whole cover.
    pub budgets: Vec<Budget>,
}

/// Which rule a problem breaks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// A choice is not well-formed.
    #[error("choice {choice}: {why}")]
    Choice {
        /// Index of the choice.
        choice: usize,
        /// A clause.
        why: &'static str,
    },
    /// A tensor has too many formats.
    #[error("tensor {tensor} needs at most {MOST_FORMATS} formats, found {formats}")]
    Formats {
        /// Index of the tensor.
        tensor: usize,
        /// How many it has.
        formats: usize,
    },
    /// A tensor, a pin, a charge or a budget is not well-formed.
    #[error("{what} {index} {why}")]
    Rule {
        /// `tensor`, `pin`, `charge` or `budget`.
        what: &'static str,
        /// Its index.
        index: usize,
        /// A clause.
        why: &'static str,
    },
    /// A cover that was found breaks a rule.
    #[error(transparent)]
    Cover(#[from] CoverError),
    /// The solver of linear programmes gave up before it found any cover.
    #[error("no cover was found: {why}")]
    Unsolved {
        /// A clause.
        why: String,
    },
    /// No set of choices covers every node once with formats that convert into each other.
    #[error("no choices cover node {node} and all before it")]
    Uncoverable {
        /// The first node at which every partial cover ends.
        node: usize,
    },
}

impl Problem {
    /// Checks that choices name existing nodes and tensors, in order, and read no inner value of others.
    pub fn check(&self) -> Result<(), ProblemError> {
        let mut made_by: Vec<Vec<usize>> = vec![Vec::new(); self.nodes];
        for (t, tensor) in self.tensors.iter().enumerate() {
            if tensor.convert.len() > MOST_FORMATS {
                return Err(ProblemError::Formats { tensor: t, formats: tensor.convert.len() });
            }
            if tensor.producer.iter().chain(&tensor.consumers).any(|&n| n >= self.nodes) {
                let why = "names a node that is not there";
                return Err(ProblemError::Rule { what: "tensor", index: t, why });
            }
            if let Some(producer) = tensor.producer {
                made_by[producer].push(t);
            }
        }
        for (index, c) in self.choices.iter().enumerate() {
            let wrong = |why| Err(ProblemError::Choice { choice: index, why });
            if c.nodes.is_empty() || !c.nodes.is_sorted_by(|a, b| a < b) {
                return wrong("its nodes are not in rising order");
            }
            if c.exit() >= self.nodes {
                return wrong("it names a node that is not there");
            }
            if c.cost.is_nan() || c.cost < 0.0 {
                return wrong("its price is negative or not a number");
            }
            let exists = |list: &[(usize, FormatId)]| {
                list.iter().all(|&(t, f)| {
                    t < self.tensors.len() && usize::from(f) < self.tensors[t].convert.len()
                })
            };
            if !exists(&c.reads) || !exists(&c.writes) {
                return wrong("it names a tensor or a format that is not there");
            }
            let makes = |t: usize| c.writes.iter().any(|w| w.0 == t);
            if c.reads.iter().any(|r| makes(r.0)) {
                return wrong("it reads what it makes");
            }
            let mut inside = c.nodes.iter().flat_map(|&n| &made_by[n]);
            if !self.recompute && inside.any(|&t| self.is_read_outside(t, c) && !makes(t)) {
                return wrong("a value inside it is read from outside");
            }
        }
        self.check_rules()
    }

    /// Checks pins, charges and budgets.
    fn check_rules(&self) -> Result<(), ProblemError> {
        let count = self.choices.len();
        let wrong = |what, index, why| Err(ProblemError::Rule { what, index, why });
        let amount = |x: f64| x.is_finite() && x >= 0.0;
        if let Some(i) = self.pins.iter().position(|p| p.choice >= count) {
            return wrong("pin", i, "names a choice that is not there");
        }
        if let Some(i) = self.charges.iter().position(|&c| !amount(c)) {
            return wrong("charge", i, "is negative or not finite");
        }
        for (i, budget) in self.budgets.iter().enumerate() {
            let mut named: Vec<usize> = budget.uses.iter().map(|u| u.0).collect();
            named.sort_unstable();
            if named.last().is_some_and(|&c| c >= count) || named.windows(2).any(|w| w[0] == w[1]) {
                return wrong("budget", i, "names a choice that is not there, or one twice");
            }
            let most = budget.most.max(0.0);
            if most != budget.most || !budget.uses.iter().all(|u| amount(u.1)) {
                return wrong("budget", i, "holds an amount that is negative or not finite");
            }
        }
        Ok(())
    }

    /// Whether the choice makes everything of it that is read from outside.
    pub(crate) fn writes_all(&self, choice: &Choice) -> bool {
        self.tensors.iter().enumerate().all(|(t, tensor)| {
            tensor.producer.is_none_or(|n| choice.nodes.binary_search(&n).is_err())
                || !self.is_read_outside(t, choice)
                || choice.writes.iter().any(|w| w.0 == t)
        })
    }

    /// Whether anyone outside the choice reads the tensor.
    fn is_read_outside(&self, tensor: usize, choice: &Choice) -> bool {
        let t = &self.tensors[tensor];
        let inside = |n: &usize| choice.nodes.binary_search(n).is_ok();
        t.wanted.is_some() || !t.consumers.iter().all(inside)
    }

    /// Whether the choice has exits besides its last node.
    pub(crate) fn has_more_exits(&self, choice: &Choice) -> bool {
        choice.writes.iter().any(|&(t, _)| {
            self.tensors[t].producer != Some(choice.exit()) && self.is_read_outside(t, choice)
        })
    }

    /// Whether covers are priced by choices and conversions alone, every choice with one exit: what
    /// [`sweep`](crate::sweep) can solve.
    pub fn is_plain(&self) -> bool {
        let rules = self.recompute
            || self.charges.iter().any(|&c| c > 0.0)
            || !self.pins.is_empty()
            || !self.budgets.is_empty();
        !rules && !self.choices.iter().any(|c| self.has_more_exits(c))
    }
}
