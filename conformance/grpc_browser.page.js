// A page with the public clients: `run(base)` calls the greeter at that origin, and returns a list of results.
import { create, createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FieldDescriptorProto_Label as Label, FieldDescriptorProto_Type as Type, FileDescriptorProtoSchema, MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { GrpcWebClientBase, MethodDescriptor, MethodType } from "grpc-web";

// The greeter, as a file descriptor: no generated code.
const field = (number, name, type, label = Label.OPTIONAL) => ({ number, name, jsonName: name.replace(/_(.)/g, (_, c) => c.toUpperCase()), type, label });
const method = (name, serverStreaming, idempotencyLevel) => ({
  name, serverStreaming, inputType: ".helloworld.v1.HelloRequest", outputType: ".helloworld.v1.HelloReply", options: { idempotencyLevel },
});
const file = create(FileDescriptorProtoSchema, {
  name: "greeter.proto", package: "helloworld.v1", syntax: "proto3",
  messageType: [
    { name: "HelloRequest", field: [field(1, "name", Type.STRING), field(2, "code", Type.UINT32), field(3, "delay_ms", Type.UINT32), field(4, "replies", Type.UINT32), field(5, "echo_metadata", Type.BOOL)] },
    { name: "HelloReply", field: [field(1, "message", Type.STRING), field(2, "metadata", Type.STRING, Label.REPEATED)] },
  ],
  service: [{ name: "Greeter", method: [method("SayHello", false, Level.NO_SIDE_EFFECTS), method("LotsOfReplies", true, Level.IDEMPOTENCY_UNKNOWN)] }],
});
const registry = createFileRegistry(file, () => undefined);
const Greeter = registry.getService("helloworld.v1.Greeter");
const Request = registry.getMessage("helloworld.v1.HelloRequest");
const Reply = registry.getMessage("helloworld.v1.HelloReply");

let seen;
const expect = (text, holds, more) => seen.push({ text, holds: Boolean(holds), more: JSON.stringify(more) ?? "" });

async function attempt(text, work) {
  try {
    await work();
  } catch (error) {
    expect(text, false, `${error}`);
  }
}

async function fails(work) {
  try {
    await work();
  } catch (error) {
    return ConnectError.from(error);
  }
  return new ConnectError("it did not fail", Code.Unknown);
}

async function byConnect(name, transport) {
  const client = createClient(Greeter, transport);
  await attempt(`${name}: unary`, async () => {
    let trailer;
    const reply = await client.sayHello({ name: "Ann", echoMetadata: true }, { headers: { "x-tenant": "7" }, onTrailer: (t) => (trailer = t) });
    expect(`${name}: unary`, reply.message === "hello Ann" && reply.metadata.includes("x-tenant: 7") && trailer, reply);
  });
  await attempt(`${name}: server stream`, async () => {
    const replies = [];
    for await (const reply of client.lotsOfReplies({ name: "Ann", replies: 3 })) replies.push(reply.message);
    expect(`${name}: server stream`, replies.length === 3 && replies.every((m) => m === "hello Ann"), replies);
  });
  const missing = await fails(() => client.sayHello({ name: "Ann", code: 5 }));
  expect(`${name}: an error of the service`, missing.code === Code.NotFound && missing.rawMessage.includes("code 5"), { code: missing.code, message: missing.message });
  const late = await fails(() => client.sayHello({ name: "Ann", delayMs: 30000 }, { timeoutMs: 200 }));
  expect(`${name}: a deadline`, late.code === Code.DeadlineExceeded, { code: late.code, message: late.message });
  const replies = [];
  const broken = await fails(async () => {
    for await (const reply of client.lotsOfReplies({ name: "Ann", replies: 2, code: 8 })) replies.push(reply.message);
  });
  expect(`${name}: an error behind a stream`, broken.code === Code.ResourceExhausted && replies.length === 2, { code: broken.code, replies });
}

async function byGrpcWeb(name, base, format) {
  const client = new GrpcWebClientBase({ format });
  const write = (message) => toBinary(Request, create(Request, message));
  const read = (bytes) => fromBinary(Reply, bytes);
  const of = (method, type) => new MethodDescriptor(`/helloworld.v1.Greeter/${method}`, type, Object, Object, write, read);
  const unary = (message) =>
    new Promise((done) => {
      client.rpcCall(`${base}/helloworld.v1.Greeter/SayHello`, message, { "x-tenant": "7" }, of("SayHello", MethodType.UNARY), (error, reply) => done({ error, reply }));
    });
  const hello = await unary({ name: "Ann", echoMetadata: true });
  expect(`${name}: unary`, hello.reply?.message === "hello Ann" && hello.reply.metadata.includes("x-tenant: 7"), `${hello.error}`);
  const missing = await unary({ name: "Ann", code: 5 });
  expect(`${name}: an error of the service`, missing.error?.code === 5 && missing.error.message.includes("code 5"), `${missing.error}`);
  const stream = client.serverStreaming(`${base}/helloworld.v1.Greeter/LotsOfReplies`, { name: "Ann", replies: 3 }, {}, of("LotsOfReplies", MethodType.SERVER_STREAMING));
  const replies = [];
  const status = await new Promise((done) => {
    stream.on("data", (reply) => replies.push(reply.message));
    stream.on("error", (error) => done({ code: error.code, details: error.message }));
    stream.on("status", (status) => done(status));
  });
  expect(`${name}: server stream`, status.code === 0 && replies.length === 3, { status, replies });
}

window.run = async (base) => {
  seen = [];
  const methods = [];
  const noting = (url, init) => {
    methods.push(init.method);
    return fetch(url, init);
  };
  await byConnect("Connect, JSON", createConnectTransport({ baseUrl: base, useBinaryFormat: false }));
  await byConnect("Connect, Protocol Buffers", createConnectTransport({ baseUrl: base, useBinaryFormat: true }));
  await byConnect("Connect, by GET", createConnectTransport({ baseUrl: base, useHttpGet: true, fetch: noting }));
  expect("Connect, by GET: it was", methods.includes("GET"), methods);
  await byConnect("gRPC-Web of Connect", createGrpcWebTransport({ baseUrl: base }));
  await byGrpcWeb("grpc-web, text", base, "text");
  await byGrpcWeb("grpc-web, binary", base, "binary");
  return seen;
};
