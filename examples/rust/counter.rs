//! Counts in two connections at a time, with nothing but the standard library: a request is a line, as one
//! would type it, and the reply to INCR is a line with a number.

use std::{
    env, io,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    thread,
};

const EACH: usize = 1000;

fn call(connection: &mut BufReader<TcpStream>, request: &str) -> io::Result<i64> {
    // One write: a request in two pieces waits for the acknowledgement of the first.
    connection.get_mut().write_all(format!("{request}\r\n").as_bytes())?;
    let mut reply = String::new();
    connection.read_line(&mut reply)?;
    let number = reply.trim().strip_prefix(':').and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other(reply))
}

fn main() -> io::Result<()> {
    let address = env::var("REDIS_ADDRESS").unwrap_or("127.0.0.1:6379".into());
    let connect = || TcpStream::connect(&address).map(BufReader::new);
    call(&mut connect()?, "DEL counter:example")?;
    let count = |mut connection: BufReader<TcpStream>| -> io::Result<()> {
        // Each reply says that the new value is on disk.
        (0..EACH).try_for_each(|_| call(&mut connection, "INCR counter:example").map(|_| ()))
    };
    let (one, two) = (connect()?, connect()?);
    let other = thread::spawn(move || count(two));
    count(one)?;
    other.join().expect("it does not panic")?;
    println!("{}", call(&mut connect()?, "INCRBY counter:example 0")?);
    Ok(())
}
