//! HTTP/1.1 as bytes: parse, frame, emit. No sockets, no clock, no runtime.
