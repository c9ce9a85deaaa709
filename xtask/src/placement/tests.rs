use super::*;

/// A file that goes with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A finished step.
fn row(step: &str, model: &str, content: Value) -> String {
    let mut row = content;
    row["step"] = Value::from(step);
    row["model"] = Value::from(model);
    row["threads"] = Value::from(1);
    row["batch"] = Value::from(1);
    format!("{row}\n")
}

fn target(name: &str, ratio: f64, half: f64) -> Value {
    json!({ "name": name, "median_ns": 1e6 * ratio, "runs": 15, "ratio": [ratio, ratio - half, ratio + half] })
}

#[test]
fn finished_steps_are_not_repeated_and_a_torn_one_is() {
    let a = Case { threads: 1, batch: 1, model: "a".to_owned() };
    let whole = row("op-level", "a", json!({ "seconds": 1.0 }));
    let file = File::new("torn", &format!("{whole}{}", &whole[..20]));
    let mut results = Results::open(file.0.clone()).unwrap();
    assert_eq!(results.rows.len(), 1);
    let mut never = || panic!("it is there");
    assert_eq!(results.take("op-level", &a, &mut never).unwrap()["seconds"], 1.0);
    let mut fails = || Err("no room".to_owned());
    assert_eq!(results.take("greedy", &a, &mut fails).unwrap()["refused"], "no room");
    let mut results = Results::open(file.0.clone()).unwrap();
    assert_eq!(results.rows.len(), 2);
    assert_eq!(results.take("greedy", &a, &mut never).unwrap()["refused"], "no room");
    // Another batch is another case.
    assert!(results.get("op-level", &Case { batch: 4, ..a }).is_none());
    let file = File::new("damaged", &format!("{}\n{whole}", &whole[..20]));
    assert!(Results::open(file.0.clone()).err().unwrap().contains(":1: "));
}

#[test]
fn every_model_is_evaluated_and_some_at_larger_batches() {
    let models: Vec<String> = ["resnet18", "bert-base"].map(str::to_owned).to_vec();
    let all = plans::cases(&models, &[1, 2]);
    let of = |threads, batch, model: usize| Case { threads, batch, model: models[model].clone() };
    for case in [of(1, 1, 0), of(2, 1, 0), of(1, 1, 1), of(1, 16, 1)] {
        assert!(all.contains(&case), "{case:?}");
    }
    assert!(!all.contains(&of(2, 4, 1)) && !all.contains(&of(1, 4, 0)));
}

#[test]
fn the_page_says_what_the_rows_show() {
    let bench = |judged: &str, model: &str, gains: [f64; 4]| {
        let [ort, ov, native, other] = gains;
        let targets = [
            target(judged, 1.0, 0.0),
            target("native alone", native, 0.01),
            target(if judged == "exact" { "collage-v1" } else { "greedy" }, other, 0.01),
            target("up to onednn", 1.5, 0.01),
            target("without native", 1.25, 0.01),
            target("onnxruntime itself", ort, 0.01),
            target("openvino itself", ov, 0.01),
        ];
        let out = json!([{ "name": "openvino alone", "why": "it is wrong" }]);
        row(&format!("bench {judged}"), model, json!({ "targets": targets, "left_out": out }))
    };
    let op_level = json!({
        "machine": "a machine", "seconds": 9.5, "skipped": 3, "predicted_ns": 5e5, "backends": ["native", "onednn"],
        "convolutions": [{ "backend": "native" }, { "backend": "onednn" }, { "backend": "native" }],
    });
    let evolution = json!({
        "layout_blind_ns": 6e5, "op_level_predicted_ns": 7e5, "op_level_ns": 9e5, "best_ns": 6e5, "best_after_s": 2.0,
        "individuals": 7, "failed": 1,
    });
    let again = json!({
        "targets": [target("op-level", 1.0, 0.0), target("native alone", 0.95, 0.01)]
    });
    let lines = [
        row("op-level", "a", op_level.clone()),
        row("op-level", "b", op_level),
        row("op-level again", "a", json!({ "seconds": 0.5, "predicted_ns": 5e5 })),
        row("native alone again", "a", json!({ "predicted_ns": 1e6 })),
        row("without native again", "a", json!({ "predicted_ns": 8.5e5 })),
        row("up to blas", "a", json!({})),
        row("exact", "b", json!({ "seconds": 20.0, "skipped": 0, "backends": ["native"] })),
        row("collage-v1", "a", json!({ "evolutions": [evolution] })),
        row("onednn alone", "a", json!({ "on_reference": 4 })),
        row("greedy", "a", json!({ "refused": "a clause" })),
        bench("op-level", "a", [2.0, 4.0, 0.9, 1.5]),
        bench("op-level", "b", [8.0, 1.2, 2.0, 1.5]),
        bench("exact", "b", [8.0, 1.3, 2.0, 1.6]),
        row("bench op-level again native alone", "a", again),
    ];
    let file = File::new("page", &lines.concat());
    let page = summary::page(&Results::open(file.0.clone()).unwrap());
    for words in [
        "f32; machine: a machine.",
        "| a | 1 | 1.000 ms | 2: native, onednn | 2.000 (1.990-2.010) | 4.000 (3.990-4.010) | 0.900 (0.890-0.910) |",
        "| b | 1 | 1.000 ms | 1: native | 8.000 (7.990-8.010) | 1.300 (1.290-1.310) | 2.000 (1.990-2.010) |",
        "| 1 | 2 | the best single framework, openvino itself | 2.191 | 1.200 |",
        "| 1 | 2 | the best framework per model | 1.549 | 1.200 |",
        "| 1 | 2 | the best per model of all backends alone and frameworks | 1.039 | 0.900 |",
        "| 1 | 1 | collage-v1 | 1.600 | 1.600 |",
        "- 1 threads: 1 of 2 beat every single backend and framework beyond the interval: b",
        "- 1 threads: 0 of 1 beat every single backend and framework beyond the interval: none",
        "- a at 1 threads, native alone: 0.900 (0.890-0.910); again 0.950 (0.940-0.960): **slower**",
        "1 found, 1 of them twice.",
        "0 found, 0 of them twice.",
        "| a | 1 | 1.000, 0.900 | -, - | -, 1.500 | -, - | 0.500, 1.000 |",
        "Geometric means of what was measured: 0.900, -, 1.500, -, 1.000.",
        "| a | 1 | 1.700, 1.250 | -, - | -, - | -, - | -, - |",
        "| a | 1 | 3 | native 2, onednn 1 |",
        "In all native 4, onednn 2: native wins 67 %.",
        "| a | 1 | op-level | 9.5 s | 3 | 0.5 s |",
        "| b | 1 | exact | 20.0 s | 0 | - |",
        "| a | 1 | 7 | 1 | 2.0 s | 1.500 |",
        "| a | 1 | 1.200 | 1.400 |",
        "- a at 1 threads, onednn alone: does not cover the model: 4 regions are left",
        "- a at 1 threads, greedy: a clause",
        "- b at 1 threads, bench op-level of openvino alone: it is wrong",
    ] {
        assert!(page.contains(words), "{page}\nlacks\n{words}");
    }
}
