//! Every error code in prose: what it means, what usually causes it and what to do.

/// One error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// As messages show it.
    pub name: &'static str,
    /// A few sentences.
    pub prose: &'static str,
}

/// The code of this name.
pub fn find(name: &str) -> Option<&'static Code> {
    CODES.iter().find(|c| c.name == name)
}

/// All codes that [`crate::Error::code`] gives, by name.
pub static CODES: &[Code] = &[
    Code {
        name: "artefact::unusable",
        prose: "The folder is no artefact, or one that is damaged, made by another version or made for other \
            hardware. An artefact's files are hashed: a file that was changed, cut short or exchanged is \
            refused. Make it again with `bricolage optimize`; the prices that the search measured are kept, so \
            that this takes seconds.",
    },
    Code {
        name: "backend::absent",
        prose: "A backend was asked for by name that does not exist, is not installed here or cannot do what \
            was asked. `bricolage backend list` says for each backend whether it is here, where it was \
            looked for and how to get it. Nothing else is used in its place.",
    },
    Code {
        name: "backend::library",
        prose: "A library that `--backend-lib` or `BRICOLAGE_BACKEND_LIB` names is no backend: it cannot be read \
            or loaded, exports no `bricolage_backend`, was made for another version of the interface, or its \
            pattern file does not fit it. Build it again with the header of this version, \
            `include/bricolage_backend.h`; nothing else is used in its place.",
    },
    Code {
        name: "backend::worker",
        prose: "Foreign code runs in a process of its own, and that process ended or did not answer. The \
            runtime crashed, was killed for its memory, or hangs. Other backends are not affected: leave this \
            one out with `--backend`, or run the model on it alone to see what it says.",
    },
    Code {
        name: "bench::peer",
        prose: "A runtime could not run the whole model that it was given: it refuses the model, fails at run \
            time, or its package is damaged. The message says what the runtime said.",
    },
    Code {
        name: "check::mismatch",
        prose: "A result is further from the reference evaluator's than rounding explains, or two targets have \
            outputs of different number or type. Tolerances are derived from the model itself: what happens \
            to its outputs when every step rounds once more. `bricolage compare A B --bisect` names the first \
            rewrite, kernel or conversion that is wrong, and `bricolage reduce` makes the model small.",
    },
    Code {
        name: "check::rewrite",
        prose: "The simplified graph gives other outputs than the model: a rewrite rule is wrong. This is a bug \
            in bricolage. `--verify rewrites` evaluates every rewrite, leaves the wrong one out and saves the \
            nodes that show it.",
    },
    Code {
        name: "file::npz",
        prose: "A file of tensors is no npz file, or holds an array that is no tensor of numbers: objects, \
            texts, dates, other byte orders. Write it with `numpy.savez`; `bf16` is stored as `ml_dtypes` \
            stores it.",
    },
    Code {
        name: "file::unusable",
        prose: "A file cannot be read, written or replaced; the message says what the system said. Results are \
            written beside their place and moved there when they are whole, so nothing half-written is left. \
            What exists is replaced only with `--overwrite`, and only when it is what the verb writes.",
    },
    Code {
        name: "goal::interrupted",
        prose: "The work was stopped before there was a result. What was measured is kept: the same command \
            continues from there.",
    },
    Code {
        name: "internal::broken-promise",
        prose: "Something that should hold by construction does not. This is a bug in bricolage, not in your \
            model. The message names a folder with what shows it where there is one.",
    },
    Code {
        name: "measure::database",
        prose: "The database of measured costs, a file in the cache folder, cannot be opened or written. A \
            damaged one is set aside and made anew; this error is about the folder or the disk. \
            `BRICOLAGE_CACHE_DIR` names another folder.",
    },
    Code {
        name: "onnx::cycle",
        prose: "Nodes of the model depend on their own results, so that no order can run them.",
    },
    Code {
        name: "onnx::declared-type",
        prose: "The model declares a type for a value that contradicts what its operators make of it. Either \
            the declaration is stale, as after an edit of the file, or an operator was meant otherwise.",
    },
    Code {
        name: "onnx::deep-functions",
        prose: "Functions of the model call each other more deeply than is allowed. The limit guards against \
            files that are made to exhaust the importer.",
    },
    Code {
        name: "onnx::duplicate-name",
        prose: "Two nodes, inputs or stored tensors define a value of one name. ONNX wants every value to be \
            defined once.",
    },
    Code {
        name: "onnx::external-data",
        prose: "A tensor's bytes lie in another file that is missing, too short, outside the model's folder or \
            reached through a symbolic link. Keep the files together, as they were exported.",
    },
    Code {
        name: "onnx::file",
        prose: "The model's file cannot be read; the message says what the system said.",
    },
    Code {
        name: "onnx::function-opset",
        prose: "A function of the model is written for another version of an operator set than the model. \
            Functions are put in the place of their calls, where only the model's version holds.",
    },
    Code {
        name: "onnx::input-type",
        prose: "A graph input or output has a type that cannot be used here, or none.",
    },
    Code {
        name: "onnx::malformed-node",
        prose: "A node is written wrongly: an attribute is missing, of the wrong kind or out of its range, or \
            there are too many or too few operands. The message says what was needed and what was found.",
    },
    Code {
        name: "onnx::no-graph",
        prose: "The file decodes as a model that holds no graph: it is cut short, empty or something else.",
    },
    Code {
        name: "onnx::no-name",
        prose: "A graph input or output has no name, so that nobody could give or take it.",
    },
    Code {
        name: "onnx::no-opset",
        prose: "The model does not state the version of an operator set that its nodes use; what they mean \
            depends on it.",
    },
    Code {
        name: "onnx::no-outputs",
        prose: "Nothing comes out of the graph, so that there is nothing to compute.",
    },
    Code {
        name: "onnx::not-a-model",
        prose: "The bytes are no ONNX model: the file is damaged, cut short, or of another kind, such as a \
            pointer of Git LFS in the place of the file itself.",
    },
    Code {
        name: "onnx::not-expressible",
        prose: "The graph holds something for which ONNX has no operator, so that it cannot be written as a \
            model.",
    },
    Code {
        name: "onnx::opset",
        prose: "The model uses a version of an operator set that is older or newer than those known here. The \
            `onnx` package's version converter may raise or lower it.",
    },
    Code {
        name: "onnx::recursion",
        prose: "A function of the model calls itself, directly or through others. ONNX forbids that.",
    },
    Code {
        name: "onnx::tensor",
        prose: "A stored tensor cannot be used: its bytes do not fit its type and sizes, its sizes overflow, or \
            its element type is not known here.",
    },
    Code {
        name: "onnx::too-many-nodes",
        prose: "With functions replaced and loops typed the model has more nodes than are allowed. The limit \
            guards against files that are made to exhaust the importer.",
    },
    Code {
        name: "onnx::unknown-value",
        prose: "A node or an output reads a value that nothing defines: a name is misspelt, or a node was \
            removed without those that read it.",
    },
    Code {
        name: "onnx::unsupported-operator",
        prose: "The model uses operators, or forms of them, that are not known here; all of them are listed, \
            each with its node and the reason. A runtime of its own may take the model whole in `run`, `bench` \
            and `compare`, as MODEL@onnxruntime.",
    },
    Code {
        name: "place::failed",
        prose: "No plan could be made of the offers that there are. This is a bug in bricolage.",
    },
    Code {
        name: "place::uncovered",
        prose: "No backend that may be used takes one of the nodes; the message says what each of them said. \
            Allow more backends with `--backend`.",
    },
    Code {
        name: "place::wish",
        prose: "A node was pinned to a backend, or kept from one, in a way that leaves no plan: there is no such \
            node after rewriting, no such backend, or the backend does not take the node; or no plan stays \
            within the error budget, or a backend that is charged for is not there. The message says \
            which. `optimize --dry-run` lists nodes with the backends that take them.",
    },
    Code {
        name: "run::evaluation",
        prose: "The model is well typed and cannot be evaluated on these inputs: an index lies outside its \
            table, sizes that are data contradict each other, an integer is divided by zero. The message names \
            the node.",
    },
    Code {
        name: "run::failed",
        prose: "A plan could not be opened or a step of it failed; the message names the step and the nodes \
            that it computes.",
    },
    Code {
        name: "run::out-of-range",
        prose: "An input has a size outside the range that the artefact was made for, or that `--shape` gives. \
            Plans hold for their range alone: make the artefact again with a wider one, as in \
            `--shape batch:1..64`.",
    },
    Code {
        name: "run::wrong-inputs",
        prose: "The inputs given are not those of the model: a name, a type or a size differs, or a size does \
            not fit in memory. `bricolage inspect MODEL` lists what the model wants.",
    },
    Code {
        name: "type::mismatch",
        prose: "The operands of a node do not fit its operator: their types or sizes contradict each other. The \
            message lists the operands with what is known of them.",
    },
    Code {
        name: "type::symbolic-dim",
        prose: "A size is left open by the model and is needed as a number: give it with \
            `--shape NAME:1x3x224x224` or by inputs.",
    },
];
