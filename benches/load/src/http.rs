//! One HTTP/1.1 connection that is kept alive: a request goes out in one write, its answer is read to its last byte.
//!
//! Raw rather than a client library, because the driver shares the machine with what it measures. Strict, because what
//! cannot be read for certain must not count as an answer: exactly one framing, nothing after the answer, no close.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More header lines than the service ever sends.
const MAX_HEADERS: usize = 48;
/// What is read at once.
const READ: usize = 16 * 1024;

/// A connection, with the request being written and the answer being read.
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    received: Vec<u8>,
    unchunked: Vec<u8>,
}

/// An answer, read whole.
pub struct Answer<'a> {
    /// The status code.
    pub status: u16,
    /// Whether `Idempotent-Replayed: true` was there.
    pub replayed: bool,
    /// The content, without its framing.
    pub body: &'a [u8],
    /// The value of `Location`; empty without one.
    pub location: &'a [u8],
    /// The value of `Set-Cookie` up to its attributes; empty without one.
    pub cookie: &'a [u8],
}

#[derive(Default)]
struct Head {
    length: usize,
    status: u16,
    replayed: bool,
    chunked: bool,
    content_length: Option<usize>,
    location: Range<usize>,
    cookie: Range<usize>,
}

impl Connection {
    /// Opens one.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { address, stream, received: Vec::with_capacity(READ), unchunked: Vec::new() })
    }

    /// Another one to the same address.
    ///
    /// # Errors
    /// When nobody listens there any more.
    pub async fn another(&self) -> io::Result<Self> {
        Self::open(self.address).await
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is no answer.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.received.clear();
        let head = loop {
            self.read_more().await?;
            if let Some(head) = Head::parse(&self.received)? {
                break head;
            }
        };
        let body = if head.chunked {
            self.read_chunks(head.length).await?;
            self.unchunked.as_slice()
        } else {
            let length = head.content_length.context("an answer without a length")?;
            while self.received.len() < head.length + length {
                self.read_more().await?;
            }
            ensure!(self.received.len() == head.length + length, "bytes after the answer");
            &self.received[head.length..]
        };
        let (location, cookie) = (&self.received[head.location], &self.received[head.cookie]);
        Ok(Answer { status: head.status, replayed: head.replayed, body, location, cookie })
    }

    async fn read_more(&mut self) -> Result<()> {
        self.received.reserve(READ);
        ensure!(self.stream.read_buf(&mut self.received).await? > 0, "closed before the answer was whole");
        Ok(())
    }

    /// Reads the chunks from `at` on into `unchunked`.
    async fn read_chunks(&mut self, mut at: usize) -> Result<()> {
        self.unchunked.clear();
        loop {
            let (start, size) = loop {
                match httparse::parse_chunk_size(&self.received[at..]) {
                    Ok(httparse::Status::Complete((start, size))) => break (at + start, usize::try_from(size)?),
                    Ok(httparse::Status::Partial) => self.read_more().await?,
                    Err(_) => bail!("a chunk without a size"),
                }
            };
            let end = start.checked_add(size).context("a chunk of no size that can be")?;
            while self.received.len() < end + 2 {
                self.read_more().await?;
            }
            ensure!(&self.received[end..end + 2] == b"\r\n", "a chunk that does not end, or a trailer");
            self.unchunked.extend_from_slice(&self.received[start..end]);
            at = end + 2;
            if size == 0 {
                ensure!(self.received.len() == at, "bytes after the answer");
                return Ok(());
            }
        }
    }
}

impl Head {
    /// `None`: there is more to come.
    fn parse(received: &[u8]) -> Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = response.parse(received)? else { return Ok(None) };
        ensure!(response.version == Some(1), "not HTTP/1.1");
        let mut head = Self { length, status: response.code.context("no status")?, ..Self::default() };
        for header in response.headers.iter() {
            head.take(header, received)?;
        }
        ensure!(head.chunked != head.content_length.is_some(), "not exactly one framing");
        Ok(Some(head))
    }

    fn take(&mut self, header: &httparse::Header<'_>, received: &[u8]) -> Result<()> {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let length = std::str::from_utf8(header.value)?.parse()?;
            ensure!(self.content_length.replace(length).is_none(), "two lengths");
        } else if is("transfer-encoding") {
            ensure!(header.value == b"chunked" && !self.chunked, "an unknown transfer encoding");
            self.chunked = true;
        } else if is("connection") {
            ensure!(!header.value.eq_ignore_ascii_case(b"close"), "the service closes the connection");
        } else if is("idempotent-replayed") {
            self.replayed = header.value == b"true";
        } else if is("location") {
            self.location = place(header.value, received);
        } else if is("set-cookie") {
            let pair = header.value.split(|byte| *byte == b';').next().unwrap_or_default();
            self.cookie = place(pair, received);
        }
        Ok(())
    }
}

/// Where a part of `whole` stands in it.
fn place(part: &[u8], whole: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Sends `pieces` as the answer to one request, each in a segment of its own, and tells what was read.
    async fn read(pieces: &'static [&'static str]) -> Result<(u16, bool, String, String, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let client = async move {
            let mut connection = Connection::open(address).await.unwrap();
            let answer = connection.exchange(b"ping").await?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            Ok((answer.status, answer.replayed, text(answer.body), text(answer.location), text(answer.cookie)))
        };
        tokio::join!(server, client).1
    }

    #[tokio::test]
    async fn an_answer_of_known_length_is_read_with_the_headers_that_matter() {
        let answer = read(&[
            "HTTP/1.1 201 Created\r\nContent-Length: 5\r\nLocation: /a\r\nidempotent-",
            "replayed: true\r\nSet-Cookie: s=1; HttpOnly\r\n\r\nhe",
            "llo",
        ]);
        let expected = (201, true, "hello".to_owned(), "/a".to_owned(), "s=1".to_owned());
        assert_eq!(answer.await.unwrap(), expected);
    }

    #[tokio::test]
    async fn chunks_are_put_together_however_they_are_cut() {
        for pieces in [
            &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"][..],
            &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3", "\r\nab", "c\r", "\n2\r\nde\r\n0\r\n", "\r\n"],
        ] {
            assert_eq!(read(pieces).await.unwrap().2, "abcde");
        }
    }

    #[tokio::test]
    async fn what_is_no_whole_answer_is_an_error() {
        for pieces in [
            &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"][..],
            &["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc"],
            &["HTTP/1.1 200 OK\r\n\r\n"],
            &["HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n"],
            &["HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"],
            &["HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
            &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx"],
            &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"],
            &["HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"],
            &["nonsense\r\n\r\n"],
        ] {
            assert!(read(pieces).await.is_err(), "{pieces:?}");
        }
    }
}
