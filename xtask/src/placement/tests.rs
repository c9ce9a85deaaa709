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
    row["time_limit"] = Value::from("9s");
    format!("{row}\n")
}

fn target(name: &str, ratio: f64, half: f64) -> Value {
    json!({ "name": name, "median_ns": 1e6 * ratio, "runs": 15, "ratio": [ratio, ratio - half, ratio + half] })
}

#[test]
fn finished_steps_are_not_repeated_and_a_torn_one_is() {
    let whole = row("exact", "a", json!({ "seconds": 1.0 }));
    let file = File::new("torn", &format!("{whole}{}", &whole[..20]));
    let mut results = Results::open(file.0.clone(), "9s").unwrap();
    assert_eq!(results.rows.len(), 1);
    let mut never = || panic!("it is there");
    assert_eq!(results.take("exact", "a", 1, &mut never).unwrap()["seconds"], 1.0);
    let mut fails = || Err("no room".to_owned());
    assert_eq!(results.take("greedy", "a", 1, &mut fails).unwrap()["refused"], "no room");
    let mut results = Results::open(file.0.clone(), "9s").unwrap();
    assert_eq!(results.rows.len(), 2);
    assert_eq!(results.take("greedy", "a", 1, &mut never).unwrap()["refused"], "no room");
    // Another time limit is another evaluation.
    let other = Results::open(file.0.clone(), "8s").unwrap();
    assert!(other.get("exact", "a", 1).is_none());
    let file = File::new("damaged", &format!("{}\n{whole}", &whole[..20]));
    assert!(Results::open(file.0.clone(), "9s").err().unwrap().contains(":1: "));
}

#[test]
fn the_page_says_what_the_rows_show() {
    let bench = |model: &str, gains: [f64; 4]| {
        let [ort, ov, native, v1] = gains;
        let targets = [
            target("exact", 1.0, 0.0),
            target("native alone", native, 0.01),
            target("collage-v1", v1, 0.01),
            target("up to onednn", 1.5, 0.01),
            target("onnxruntime itself", ort, 0.01),
            target("openvino itself", ov, 0.01),
        ];
        let out = json!([{ "name": "openvino alone", "why": "it is wrong" }]);
        row("bench", model, json!({ "targets": targets, "left_out": out }))
    };
    let exact = json!({
        "machine": "a machine", "seconds": 9.5, "skipped": 3, "predicted_ns": 5e5, "backends": ["native", "onednn"],
        "convolutions": [{ "backend": "native" }, { "backend": "onednn" }, { "backend": "native" }],
    });
    let evolution = json!({
        "layout_blind_ns": 6e5, "op_level_predicted_ns": 7e5, "op_level_ns": 9e5, "best_ns": 6e5, "best_after_s": 2.0,
        "individuals": 7, "failed": 1,
    });
    let lines = [
        row("exact", "a", exact),
        row("exact again", "a", json!({ "seconds": 0.5, "predicted_ns": 5e5 })),
        row("native alone again", "a", json!({ "predicted_ns": 1e6 })),
        row("collage-v1", "a", json!({ "evolutions": [evolution] })),
        row("onednn alone", "a", json!({ "on_reference": 4 })),
        row("greedy", "a", json!({ "refused": "a clause" })),
        bench("a", [2.0, 4.0, 0.9, 1.5]),
        bench("b", [8.0, 1.0, 2.0, 1.5]),
        row(
            "bench again native alone",
            "a",
            json!({ "targets": [target("exact", 1.0, 0.0), target("native alone", 0.95, 0.01)] }),
        ),
    ];
    let file = File::new("page", &lines.concat());
    let page = summary::page(&Results::open(file.0.clone(), "9s").unwrap());
    for words in [
        "machine: a machine; time limit of each search: 9s",
        "| a | 1 | 1.000 ms | 2: native, onednn | 2.000 (1.990-2.010) | 4.000 (3.990-4.010) | 0.900 (0.890-0.910) |",
        "| 1 | 2 | the best single framework, openvino itself | 2.000 | 1.000 |",
        "| 1 | 2 | the best framework per model | 1.414 | 1.000 |",
        "| 1 | 2 | the best per model of all backends alone and frameworks | 0.949 | 0.900 |",
        "| 1 | 2 | collage-v1 | 1.500 | 1.500 |",
        "- a at 1 threads, native alone: 0.900 (0.890-0.910); again 0.950 (0.940-0.960): **slower**",
        "1 found, 1 of them twice.",
        "| a | 1 | 1.000, 0.900 | -, - | -, 1.500 | -, - | 0.500, 1.000 |",
        "| a | 1 | 3 | native 2, onednn 1 |",
        "In all native 2, onednn 1: native wins 67 %.",
        "| a | 1 | 9.5 s | 3 | 0.5 s | 7 | 1 | 2.0 s | 1.500 |",
        "| a | 1 | 1.200 | 1.400 |",
        "- a at 1 threads, onednn alone: does not cover the model: 4 regions are left",
        "- a at 1 threads, greedy: a clause",
        "- b at 1 threads, bench of openvino alone: it is wrong",
    ] {
        assert!(page.contains(words), "{page}\nlacks\n{words}");
    }
}
