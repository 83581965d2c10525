// future.js - a proxy that makes both of its sides see messages of a later release: every message that passes gets fields that
// nobody here knows.
//
// It forwards all calls of the contract as bytes. To each message it appends a field of each wire type under numbers that
// are not in use, which is what a message with more fields looks like to a program that does not know them.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(new URL('../../examples/javascript/', import.meta.url));
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;

// A varint, eight bytes, a text and four bytes, as the fields 1000 to 1003.
const unknown = Buffer.from([
  ...[0xc0, 0x3e, 0x2a],
  ...[0xc9, 0x3e, 1, 2, 3, 4, 5, 6, 7, 8],
  ...[0xd2, 0x3e, 6, ...Buffer.from('future')],
  ...[0xdd, 0x3e, 1, 2, 3, 4],
]);

// What a .proto says: { services: { name: methods }, messages: { name: descriptor }, enums: { name: descriptor } }.
export function contractOf(file) {
  const all = Object.entries(protoLoader.loadSync(file, { keepCase: true }));
  const typesOf = (kind) =>
    Object.fromEntries(all.filter(([, it]) => it.format?.endsWith(` ${kind}`)).map(([name, { type }]) => [name, type]));
  return {
    services: Object.fromEntries(all.filter(([, it]) => !it.format)),
    messages: typesOf('DescriptorProto'),
    enums: typesOf('EnumDescriptorProto'),
  };
}

// Makes a call that nobody has heard of: the error that comes back.
export function callUnknown(address, path) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure());
  const same = (bytes) => bytes;
  return new Promise((resolve) => {
    client.makeUnaryRequest(path, same, same, Buffer.alloc(0), (error) => {
      client.close();
      resolve(error);
    });
  });
}

const raw = (method) => ({
  ...method,
  requestSerialize: (bytes) => bytes,
  requestDeserialize: (bytes) => bytes,
  responseSerialize: (bytes) => bytes,
  responseDeserialize: (bytes) => bytes,
});

// Forwards what a caller may see of a failure.
const failure = ({ code, details, metadata }) => ({ code, details, metadata });

export class Future {
  #server = new grpc.Server({
    'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
    'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
  });
  #client;

  constructor(target) {
    this.#client = new grpc.Client(target, grpc.credentials.createInsecure(), {
      'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
      'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
    });
    this.messages = 0; // that were given more fields
  }

  static async open(target) {
    const future = new Future(target);
    const file = fileURLToPath(new URL('../../proto/capstan.proto', import.meta.url));
    for (const methods of Object.values(contractOf(file).services)) {
      const definition = Object.fromEntries(Object.entries(methods).map(([name, method]) => [name, raw(method)]));
      const handlers = Object.entries(definition).map(([name, method]) => [name, future.#handler(method)]);
      future.#server.addService(definition, Object.fromEntries(handlers));
    }
    const bind = (resolve, reject) =>
      future.#server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) =>
        error ? reject(error) : resolve(port),
      );
    future.address = `127.0.0.1:${await new Promise(bind)}`;
    return future;
  }

  #grow(bytes) {
    this.messages++;
    return Buffer.concat([bytes, unknown]);
  }

  #handler({ path, responseStream }) {
    const same = (bytes) => bytes;
    const options = (call) => ({ deadline: call.getDeadline() });
    if (responseStream) {
      return (call) => {
        const request = this.#grow(call.request);
        const inner = this.#client.makeServerStreamRequest(path, same, same, request, call.metadata, options(call));
        inner.on('data', (bytes) => call.write(this.#grow(bytes)));
        inner.on('error', (error) => call.emit('error', failure(error)));
        inner.on('end', () => call.end());
        call.on('cancelled', () => inner.cancel());
      };
    }
    return (call, answer) => {
      const request = this.#grow(call.request);
      const done = (error, bytes) => (error ? answer(failure(error)) : answer(null, this.#grow(bytes)));
      const inner = this.#client.makeUnaryRequest(path, same, same, request, call.metadata, options(call), done);
      call.on('cancelled', () => inner.cancel());
    };
  }

  close() {
    this.#server.forceShutdown();
    this.#client.close();
  }
}
