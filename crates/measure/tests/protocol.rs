//! The stopwatch tells known costs apart, ties equal ones, and the database survives damage.

use bricolage_measure::{
    Contestant, Database, Key, Machine, Measurement, Pairing, Protocol, Record, Repeat, Sample,
    SampleError, Sentinel, Verdict, pair, race,
};
use bricolage_runtime::Cancel;
use std::{
    cell::Cell,
    fs,
    time::{Duration, Instant},
};

/// Claims exact times, so that the protocol is judged without the machine's noise.
struct Pretend {
    each: Duration,
    fails_after: Option<u32>,
    runs: u32,
}

impl Sample for Pretend {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        self.runs += iterations;
        match self.fails_after {
            Some(limit) if self.runs > limit => Err(SampleError("it broke".into())),
            _ => Ok(self.each * iterations),
        }
    }
}

fn pretend(us: u64, fails_after: Option<u32>) -> Contestant<'static> {
    Contestant {
        sample: Box::new(Pretend { each: Duration::from_micros(us), fails_after, runs: 0 }),
    }
}

fn quick() -> Protocol {
    Protocol { warmup: Duration::from_micros(1), ..Protocol::default() }
}

#[test]
fn known_costs_come_out_exactly() {
    let mut contestants = [pretend(100, None), pretend(300, None), pretend(50, Some(10))];
    let verdicts = race(&mut contestants, &quick(), None, &Cancel::default());
    let median = |v: &Verdict| match v {
        Verdict::Measured(m) => m.median_ns.round(),
        Verdict::Failed(_) | Verdict::Stopped => f64::NAN,
    };
    assert_eq!((median(&verdicts[0]), median(&verdicts[1])), (100_000.0, 300_000.0));
    assert_eq!(verdicts[2], Verdict::Failed(SampleError("it broke".into())));
}

#[test]
fn a_cancelled_race_ends_at_once() {
    let cancel = Cancel::default();
    cancel.cancel();
    let verdicts = race(&mut [pretend(1_000_000, None)], &quick(), None, &cancel);
    assert_eq!(verdicts[0], Verdict::Stopped);
}

#[test]
fn a_race_ends_at_its_deadline() {
    let nap = || {
        let run = || -> Result<(), SampleError> {
            std::thread::sleep(Duration::from_millis(4));
            Ok(())
        };
        Contestant { sample: Box::new(Repeat(run)) }
    };
    let patient = |deadline: Duration| Protocol {
        min_samples: 1000,
        max_samples: 1000,
        limit: Duration::from_secs(1000),
        deadline: Some(Instant::now() + deadline),
        ..quick()
    };
    let start = Instant::now();
    let verdicts =
        race(&mut [nap(), nap()], &patient(Duration::from_millis(400)), None, &Cancel::default());
    assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
    // A machine that sleeps through the deadline may have none.
    for verdict in verdicts {
        match verdict {
            Verdict::Measured(m) => assert!(m.samples >= 3 && m.min_ns >= 4e6, "{m:?}"),
            other => assert_eq!(other, Verdict::Stopped),
        }
    }
    let verdicts = race(&mut [nap()], &patient(Duration::ZERO), None, &Cancel::default());
    assert_eq!(verdicts, [Verdict::Stopped]);
}

#[test]
fn a_deadline_ends_a_batch_between_two_looks_at_the_machine() {
    let mut sentinel = Sentinel::new();
    let deadline = Instant::now() + Duration::from_millis(200);
    let late = Cell::new(0);
    let run = || -> Result<(), SampleError> {
        late.set(late.get() + u32::from(Instant::now() >= deadline));
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    };
    let protocol = Protocol {
        min_samples: 3000,
        max_samples: 3000,
        limit: Duration::from_secs(1000),
        deadline: Some(deadline),
        ..quick()
    };
    let mut contestants = [Contestant { sample: Box::new(Repeat(run)) }];
    race(&mut contestants, &protocol, Some(&mut sentinel), &Cancel::default());
    // A run may start just before the deadline, or a warm-up last beyond it.
    assert!(late.get() <= 20, "{} runs after the deadline", late.get());
}

#[test]
fn pairs_compare_known_costs() {
    let mut a = Pretend { each: Duration::from_micros(300), fails_after: None, runs: 0 };
    let mut b = Pretend { each: Duration::from_micros(100), fails_after: None, runs: 0 };
    let ratio = pair(&mut a, &mut b, &Pairing::default(), &Cancel::default()).unwrap();
    assert!((ratio.median - 3.0).abs() < 1e-9 && ratio.is_slower() && !ratio.is_faster());
}

#[test]
fn what_is_far_behind_is_sampled_once() {
    let protocol = Protocol { warmup_runs: 0, far: 1.5, ..quick() };
    let mut contestants = [pretend(4000, None), pretend(10_000, None), pretend(5000, None)];
    let verdicts = race(&mut contestants, &protocol, None, &Cancel::default());
    let samples = |v: &Verdict| match v {
        Verdict::Measured(m) => m.samples,
        Verdict::Failed(_) | Verdict::Stopped => 0,
    };
    assert_eq!(samples(&verdicts[1]), 1);
    assert!(samples(&verdicts[0]) >= 9 && samples(&verdicts[2]) >= 9, "{verdicts:?}");
}

#[test]
fn real_time_is_taken() {
    let busy = |us: u64| {
        move || -> Result<(), SampleError> {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(us) {
                std::hint::spin_loop();
            }
            Ok(())
        }
    };
    let mut contestants = [Contestant { sample: Box::new(Repeat(busy(300))) }];
    let verdicts = race(&mut contestants, &quick(), None, &Cancel::default());
    let Verdict::Measured(m) = &verdicts[0] else { panic!("{verdicts:?}") };
    assert!(m.min_ns >= 300_000.0 && m.samples >= 9);
}

fn record(ns: f64) -> Record {
    let measurement = Measurement::of(&[ns; 9], 1, false).expect("nine samples");
    Record::Measured { measurement, error_share: 0.5, workspace: 64, refined: true }
}

#[test]
fn records_return_and_other_machines_do_not_count() {
    let folder = std::env::temp_dir().join(format!("bricolage-costs-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let machine = Machine::read();
    let (key, other) = (Key("conv a".into()), Key("conv b".into()));
    {
        let opened = Database::open(&folder, &machine).unwrap();
        assert!(opened.set_aside.is_none());
        opened.database.put(&key, &record(1.0)).unwrap();
        opened.database.put(&key, &record(2.0)).unwrap();
        opened.database.put(&other, &Record::Refused("it crashed".into())).unwrap();
        opened.database.set_note("plan", "checked").unwrap();
    }
    let again = Database::open(&folder, &machine).unwrap().database;
    assert_eq!(again.get(&key).unwrap(), Some(record(2.0)));
    assert_eq!(again.get(&other).unwrap(), Some(Record::Refused("it crashed".into())));
    assert_eq!(again.note("plan").unwrap().as_deref(), Some("checked"));
    let elsewhere = Machine { model: "another".into(), ..machine.clone() };
    let foreign = Database::open(&folder, &elsewhere).unwrap().database;
    assert_eq!((foreign.get(&key).unwrap(), foreign.len().unwrap()), (None, 2));
    drop((again, foreign));

    fs::write(
        folder.join("costs.sqlite"),
        b"this is no database, and long enough to be read as one",
    )
    .unwrap();
    let opened = Database::open(&folder, &machine).unwrap();
    let aside = opened.set_aside.expect("the damaged file is kept");
    assert!(aside.exists() && opened.database.is_empty().unwrap());
    fs::remove_dir_all(&folder).unwrap();
}
