//! A machine for tests, and a host with a few commands.

use std::{cell::Cell, collections::BTreeMap};

use wire::{Args, DecodeLimits, OwnedArgs, Protocol, ReplyWriter, Value, decode};

use crate::{Calls, Ended, LibraryId, Limits, LogLevel, Meter, Refusal, Sha, Stop, Vm};

/// A host with the commands SET, GET, RAW, whose reply is its argument unchanged, and AGAIN, which stops the
/// script.
#[derive(Default)]
pub(crate) struct TestCalls {
    pub(crate) strings: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) logged: Vec<(LogLevel, String)>,
    pub(crate) clock: TestClock,
}

/// The clock of [`TestCalls`], which each look can move.
#[derive(Default)]
pub(crate) struct TestClock {
    pub(crate) us_per_look: u64,
    pub(crate) looks: Cell<u64>,
    /// The number of looks after which scripts are killed, and the meter through which they are killed.
    pub(crate) kills_at: Option<(u64, Meter)>,
}

impl Calls for TestCalls {
    fn call(&mut self, args: Args<'_>, protocol: Protocol, reply: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut writer = ReplyWriter::new(reply, protocol);
        match (args.at(0).to_ascii_lowercase().as_slice(), args.len()) {
            (b"set", 3) => {
                self.strings.insert(args.at(1).to_vec(), args.at(2).to_vec());
                writer.ok();
            }
            (b"get", 2) => writer.bulk_or_null(self.strings.get(args.at(1)).map(Vec::as_slice)),
            (b"raw", 2) => writer.raw(args.at(1)),
            (b"again", 1) => return Err(Refusal::Stop(Stop::Retry)),
            _ => return Err(Refusal::Error("ERR Unknown Redis command called from script".into())),
        }
        Ok(())
    }

    fn may_call(&mut self, args: Args<'_>) -> Option<bool> {
        (args.at(0) == b"get").then_some(true)
    }

    fn clock_us(&self) -> u64 {
        let TestClock { us_per_look, looks, kills_at } = &self.clock;
        looks.set(looks.get() + 1);
        if let Some((_, meter)) = kills_at.as_ref().filter(|(at, _)| *at == looks.get()) {
            meter.stop(Stop::Killed);
        }
        1_500_000 + us_per_look * looks.get()
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.logged.push((level, String::from_utf8_lossy(message).into_owned()));
    }
}

/// A machine with its host.
pub(crate) struct TestVm {
    vm: Vm,
    pub(crate) limits: Limits,
    pub(crate) calls: TestCalls,
    pub(crate) protocol: Protocol,
}

impl TestVm {
    pub(crate) fn new() -> TestVm {
        let limits = Limits { memory_bytes_max: 16 << 20, instructions_max: 2_000_000_000 };
        let (vm, calls) = (Vm::new(limits), TestCalls::default());
        TestVm { vm, limits, calls, protocol: Protocol::Resp2 }
    }

    pub(crate) fn vm(&mut self) -> &mut Vm {
        &mut self.vm
    }

    /// The reply of a script as text: `+OK`, `-ERR text`, `:1`, `"bulk"`, `nil`, `[a, b]`, `{k: v}`, `~[a]`,
    /// `,1.5`, `#true`.
    pub(crate) fn eval(&mut self, source: &str, keys: &[&str], args: &[&str]) -> String {
        self.vm.set_limits(self.limits);
        let sha = Sha::of(source.as_bytes());
        let failed = |problem: crate::ScriptError| format!("-{}", String::from_utf8_lossy(&problem.0));
        if let Err(problem) = self.vm.load(sha, source.as_bytes()) {
            return failed(problem);
        }
        let [keys, args] =
            [keys, args].map(|words| words.iter().map(|word| word.as_bytes()).collect::<OwnedArgs>());
        self.vm.meter().reset();
        let ended = self.vm.run(sha, keys.as_args(), args.as_args(), 1, &mut self.calls);
        self.shown(ended)
    }

    /// The reply of a function.
    pub(crate) fn call(&mut self, id: LibraryId, name: &str, keys: &[&str], args: &[&str]) -> String {
        self.vm.set_limits(self.limits);
        let [keys, args] =
            [keys, args].map(|words| words.iter().map(|word| word.as_bytes()).collect::<OwnedArgs>());
        self.vm.meter().reset();
        let name = (id, name.as_bytes());
        let ended = self.vm.run_function(name, keys.as_args(), args.as_args(), 1, &mut self.calls);
        self.shown(ended)
    }

    fn shown(&self, ended: Ended) -> String {
        let failed = |problem: crate::ScriptError| format!("-{}", String::from_utf8_lossy(&problem.0));
        let returned = match ended {
            Ended::Returned(returned) => returned,
            Ended::Failed { problem, .. } => return failed(problem),
            Ended::Stopped(stop) => return format!("stopped: {stop:?}"),
        };
        let mut bytes = Vec::new();
        if let Err(problem) =
            returned.write(self.vm.meter(), &mut ReplyWriter::new(&mut bytes, self.protocol))
        {
            return self.vm.meter().stopped().map_or(failed(problem), |stop| format!("stopped: {stop:?}"));
        }
        let (value, _) = decode(&bytes, &DecodeLimits::DEFAULT).expect("a reply").expect("all of it");
        shown(&value)
    }
}

fn shown(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(shown).collect::<Vec<_>>().join(", ");
    match value {
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Null => "nil".to_string(),
        Value::Double(number) => format!(",{number}"),
        Value::Boolean(truth) => format!("#{truth}"),
        Value::BigNumber(digits) => format!("({}", digits.escape_ascii()),
        Value::Verbatim { format, text } => format!("{}\"{}\"", format.escape_ascii(), text.escape_ascii()),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Set(values) => format!("~[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", shown(key), shown(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}
