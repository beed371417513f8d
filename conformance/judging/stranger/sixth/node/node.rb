# A node in Ruby: `ruby node.rb --port N [--fault ID] [--peculiar ID]`, or `ruby node.rb --list`.
require_relative 'core'
require_relative 'faults'
require_relative 'peculiar'
port = 8000
until ARGV.empty?
  case (x = ARGV.shift)
  when '--port' then port = Integer(ARGV.shift)
  when '--fault' then $fault = ARGV.shift
  when '--peculiar' then $peculiar = ARGV.shift
  when '--list'
    puts JSON.generate({ faults: FAULTS.transform_values { |f| f[0] }, peculiar: PECULIAR.keys })
    exit
  else abort "unknown option #{x}"
  end
end
abort "unknown fault #{$fault}" if $fault && !FAULTS.key?($fault)
abort "unknown peculiarity #{$peculiar}" if $peculiar && !PECULIAR.key?($peculiar)
require_relative 'proto'
require_relative 'model'
require_relative 'http'
require_relative 'state'
require_relative 'api'
require_relative 'views'
require_relative 'actions'
require_relative 'chain'
require_relative 'native'
require_relative 'node_service'

STATE = State.new(port)
Chain.build
API.setup
quit = Queue.new
%w[TERM INT].each { |s| trap(s) { quit << s } }
largest = on?('grpc-messages-up-to-4-mib') ? 4 << 20 : on?('grpc-messages-up-to-64-mib') ? 64 << 20 : 100 << 20
grpc = GRPC::RpcServer.new(pool_size: 40, max_waiting_requests: 400, pool_keep_alive: 1, poll_period: 1,
                           server_args: { 'grpc.max_receive_message_length' => largest, 'grpc.max_send_message_length' => 256 << 20,
                                          'grpc.keepalive_permit_without_calls' => 1, 'grpc.http2.min_recv_ping_interval_without_data_ms' => 5000,
                                          'grpc.http2.max_ping_strikes' => 0, 'grpc.so_reuseport' => 0 })
grpc.add_http2_port("127.0.0.1:#{on?('grpc-port-plus-one') ? port + 1 : port + 1000}", :this_port_is_insecure)
grpc.handle(NodeServiceImpl.new(port))
Thread.new { grpc.run }
http = HttpServer.new(port) do |r|
  API.call(r) || Native.call(r) || (r.path.start_with?('/api/v1') ? API.error(404, 'NOT_FOUND', 'no such route') : Native.err(404, 'no such path'))
end
http.run
$stdout.puts "node on 127.0.0.1:#{port}"
$stdout.flush
quit.pop
exit!(0)
