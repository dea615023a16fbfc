//! Arbitrary bytes as requests, divided at any position: no panic, no overrun, the same commands.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::request::check::check_cut;
use wire::{DecodeLimits, Limits, decode, glob};

/// Small enough that the fuzzer's short inputs reach every limit.
const TIGHT: Limits = Limits {
    bulk_bytes_max: 100,
    args_max: 20,
    inline_bytes_max: 60,
    request_bytes_max: 300,
    authenticated: true,
};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (choice, cut, bytes) = input;
    let limits = match choice % 4 {
        0 => Limits::DEFAULT,
        1 => Limits::UNAUTHENTICATED,
        2 => TIGHT,
        _ => Limits { authenticated: false, ..TIGHT },
    };
    check_cut(bytes, usize::from(cut), &limits);
    // The other decoders of foreign bytes: they must only return.
    let _ = decode(bytes, &DecodeLimits::DEFAULT);
    let (pattern, text) = bytes.split_at(bytes.len().min(usize::from(choice)));
    let _ = glob::matches(pattern, text);
});
