//! The cover problem as numbers: nodes, tensors with formats, priced choices.

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

/// One way to compute a set of nodes with one kernel. Its last node is its only exit: no other
/// node of it is read from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Nodes in rising order; the last is the exit.
    pub nodes: Vec<usize>,
    /// Tensors read, with the format that the kernel takes.
    pub reads: Vec<(usize, FormatId)>,
    /// Tensors that the exit makes, with the format that the kernel gives.
    pub writes: Vec<(usize, FormatId)>,
    /// Price; not negative.
    pub cost: f64,
}

impl Choice {
    /// The only node that is read from outside.
    pub fn exit(&self) -> usize {
        self.nodes[self.nodes.len() - 1]
    }
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
}

/// Which rule a problem breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// No set of choices covers every node once with formats that convert into each other.
    #[error("no choices cover node {node} and all before it")]
    Uncoverable {
        /// The first node at which every partial cover ends.
        node: usize,
    },
}

/// A tensor in one more format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conversion {
    /// Which tensor.
    pub tensor: usize,
    /// Format that exists already.
    pub from: FormatId,
    /// Format that is made.
    pub to: FormatId,
}

/// Choices that cover every node once, and the conversions between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cover {
    /// Indices of choices, in the order of their exits.
    pub choices: Vec<usize>,
    /// Conversions, a format's source before it.
    pub conversions: Vec<Conversion>,
    /// Sum of the prices.
    pub cost: f64,
}

impl Problem {
    /// Checks that choices name existing nodes and tensors, in order, and read no inner value of others.
    pub fn check(&self) -> Result<(), ProblemError> {
        let mut made_by: Vec<Vec<usize>> = vec![Vec::new(); self.nodes];
        for (t, tensor) in self.tensors.iter().enumerate() {
            if tensor.convert.len() > MOST_FORMATS {
                return Err(ProblemError::Formats { tensor: t, formats: tensor.convert.len() });
            }
            if let Some(made) = tensor.producer.and_then(|n| made_by.get_mut(n)) {
                made.push(t);
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
            let inside = c.nodes.iter().flat_map(|&n| made_by[n].iter().map(move |&t| (n, t)));
            for (producer, t) in inside {
                let t = &self.tensors[t];
                let outside = t.wanted.is_some()
                    || t.consumers.iter().any(|n| c.nodes.binary_search(n).is_err());
                if outside && producer != c.exit() {
                    return wrong("a value inside it is read from outside");
                }
            }
        }
        Ok(())
    }

    /// The cheapest conversions that make every format of the set `needed` from `have`, through
    /// other formats where that is cheaper: a directed Steiner tree (Dreyfus and Wagner, *The
    /// Steiner problem in graphs*, 1971).
    pub(crate) fn conversions(
        &self,
        tensor: usize,
        have: FormatId,
        needed: u16,
    ) -> (f64, Vec<Conversion>) {
        let prices = &self.tensors[tensor].convert;
        let formats = prices.len();
        let goals: Vec<usize> =
            (0..formats).filter(|&f| f != usize::from(have) && needed & (1 << f) != 0).collect();
        if goals.is_empty() {
            return (0.0, Vec::new());
        }
        let (far, hop) = shortest_paths(prices);
        // tree[set][root]: price, and the branching point with one half of the set below it.
        let mut tree = vec![vec![(f64::INFINITY, 0, 0); formats]; 1 << goals.len()];
        for set in 1usize..1 << goals.len() {
            let below: Vec<(f64, usize)> = (0..formats)
                .map(|at| match set.is_power_of_two() {
                    true if goals[set.trailing_zeros() as usize] == at => (0.0, 0),
                    true => (f64::INFINITY, 0),
                    false => (1..set)
                        .filter(|half| half & set == *half)
                        .map(|half| (tree[half][at].0 + tree[set ^ half][at].0, half))
                        .fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a }),
                })
                .collect();
            for root in 0..formats {
                for at in 0..formats {
                    let price = far[root][at] + below[at].0;
                    if price < tree[set][root].0 {
                        tree[set][root] = (price, at, below[at].1);
                    }
                }
            }
        }
        let mut found = Vec::new();
        let mut open = vec![((1usize << goals.len()) - 1, usize::from(have))];
        let price = tree[open[0].0][open[0].1].0;
        if price.is_infinite() {
            return (price, found);
        }
        while let Some((set, mut root)) = open.pop() {
            let (_, branch, half) = tree[set][root];
            while root != branch {
                let to = hop[root][branch];
                let step = Conversion { tensor, from: root as FormatId, to: to as FormatId };
                if !found.iter().any(|c: &Conversion| c.to == step.to) {
                    found.push(step);
                }
                root = to;
            }
            if half != 0 {
                open.extend([(half, branch), (set ^ half, branch)]);
            }
        }
        (price, found)
    }
}

/// Distances between all pairs, and the first step on the way (Floyd and Warshall).
fn shortest_paths(prices: &[Vec<f64>]) -> (Vec<Vec<f64>>, Vec<Vec<usize>>) {
    let n = prices.len();
    let mut far = prices.to_vec();
    let mut hop: Vec<Vec<usize>> = vec![(0..n).collect(); n];
    for (i, row) in far.iter_mut().enumerate() {
        row[i] = 0.0;
    }
    for via in 0..n {
        for from in 0..n {
            for to in 0..n {
                let price = far[from][via] + far[via][to];
                if price < far[from][to] {
                    far[from][to] = price;
                    hop[from][to] = hop[from][via];
                }
            }
        }
    }
    (far, hop)
}
