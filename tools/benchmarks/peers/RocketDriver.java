import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Generator and reader for RocketMQ with its own Java client, tuned not to limit a measurement.
 *
 * <p>A body begins with the sixteen bytes of a Kafka record's key. Each mode prints `ready`, then one
 * line with its result. SIGTERM ends it.
 */
public final class RocketDriver {
  private static final int KEY_BYTES = 16;
  private static final int IN_FLIGHT = 4_000;
  private static final int BATCH = 1_000;
  /** Longer than any late answer, so that only refused messages are sent again. */
  private static final int SEND_TIMEOUT_MS = 60_000;

  private static final int CREATE_TRIES = 20;

  /** End the process after any error, because the client's threads would outlive it. */
  public static void main(String[] arguments) {
    try {
      run(arguments);
      System.exit(0);
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static void run(String[] arguments) throws Exception {
    String address = arguments[1];
    switch (arguments[0]) {
      case "create" -> create(address, arguments[2], Integer.parseInt(arguments[3]));
      case "send" -> new Sending(address, arguments).run();
      case "read" -> new Reading(address, arguments).run();
      case "behind" -> tellBehind(address, arguments[2]);
      default -> throw new IllegalArgumentException(arguments[0]);
    }
  }

  /** Try for a while: the name server learns of a broker shortly after its start. */
  private static void create(String address, String topic, int queues) throws Exception {
    DefaultMQProducer producer = producer(address, "create");
    for (int tries = 1; ; tries++) {
      try {
        producer.createTopic("TBW102", topic, queues, Map.of());
        break;
      } catch (MQClientException error) {
        if (tries == CREATE_TRIES) {
          throw error;
        }
        TimeUnit.SECONDS.sleep(1);
      }
    }
    System.out.println("created");
  }

  /** Print every 0.1 s the number of delayed messages that the timer has not taken. */
  private static void tellBehind(String address, String broker) throws Exception {
    DefaultMQAdminExt admin = new DefaultMQAdminExt();
    admin.setNamesrvAddr(address);
    admin.setInstanceName("behind");
    admin.start();
    while (true) {
      Map<String, String> told = admin.fetchBrokerRuntimeStats(broker).getTable();
      System.out.println(told.get("timerOffsetBehind"));
      TimeUnit.MILLISECONDS.sleep(100);
    }
  }

  private static DefaultMQProducer producer(String address, String name) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("benchmark-" + name);
    producer.setNamesrvAddr(address);
    producer.setInstanceName(name + ProcessHandle.current().pid());
    producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
    producer.setRetryTimesWhenSendAsyncFailed(0);
    producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
    producer.start();
    return producer;
  }

  private static double cpuSeconds() {
    var system = ManagementFactory.getOperatingSystemMXBean();
    return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime() / 1e9;
  }

  /** Send a whole load and wait for the broker to accept each message. Resend refused ones. */
  private static final class Sending {
    private final String topic;
    private final int count;
    private final long lowMs;
    private final long highMs;
    private final long anchorMs;
    private final double ratePerS;
    private final int valueBytes;
    private final Random random;
    private final DefaultMQProducer producer;
    private final Semaphore room = new Semaphore(IN_FLIGHT);
    private final BlockingQueue<Message> refused = new LinkedBlockingQueue<>();
    private final AtomicLong taken = new AtomicLong();

    Sending(String address, String[] arguments) throws Exception {
      topic = arguments[2];
      count = Integer.parseInt(arguments[3]);
      lowMs = Long.parseLong(arguments[4]);
      highMs = Long.parseLong(arguments[5]);
      anchorMs = Long.parseLong(arguments[6]);
      ratePerS = Double.parseDouble(arguments[7]);
      valueBytes = Integer.parseInt(arguments[8]);
      random = new Random(Long.parseLong(arguments[9]));
      producer = producer(address, "send");
      producer.fetchPublishMessageQueues(topic);
    }

    void run() throws Exception {
      System.out.println("ready");
      double cpuBeforeS = cpuSeconds();
      long startedMs = System.currentTimeMillis();
      for (int sequence = 0; sequence < count; sequence++) {
        waitForTurn(sequence, startedMs);
        sendRefused();
        send(message(sequence));
      }
      long endedMs = System.currentTimeMillis();
      while (taken.get() < count) {
        sendRefused();
        TimeUnit.MILLISECONDS.sleep(1);
      }
      double cpuS = cpuSeconds() - cpuBeforeS;
      System.out.printf("%d %d %d %.3f%n", count, startedMs, endedMs, cpuS);
    }

    private void waitForTurn(int sequence, long startedMs) throws InterruptedException {
      while (ratePerS > 0
          && (System.currentTimeMillis() - startedMs) / 1000.0 * ratePerS + 1 < sequence) {
        TimeUnit.MILLISECONDS.sleep(2);
      }
    }

    private Message message(int sequence) {
      long anchor = anchorMs > 0 ? anchorMs : System.currentTimeMillis();
      long dueMs = anchor + lowMs + (long) (random.nextDouble() * (highMs - lowMs + 1));
      ByteBuffer body = ByteBuffer.allocate(KEY_BYTES + valueBytes);
      body.putLong(sequence).putLong(dueMs);
      Message message = new Message(topic, body.array());
      message.setDeliverTimeMs(dueMs);
      return message;
    }

    private void sendRefused() throws Exception {
      for (Message again = refused.poll(); again != null; again = refused.poll()) {
        send(again);
      }
    }

    private void send(Message message) throws Exception {
      room.acquire();
      producer.send(
          message,
          new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
              room.release();
              if (result.getSendStatus() == SendStatus.SEND_OK) {
                taken.incrementAndGet();
              } else {
                refused.add(message);
              }
            }

            @Override
            public void onException(Throwable error) {
              room.release();
              refused.add(message);
            }
          });
    }
  }

  /** Read a topic from its beginning. Write sequence, due time and arrival time of each message. */
  private static final class Reading {
    private static final long QUIET_MS = 1_000;

    private final long deadlineMs;
    private final int count;
    private final DataOutputStream arrivals;
    private final DefaultMQPushConsumer consumer = new DefaultMQPushConsumer();
    private int came;
    private long lastMs = System.currentTimeMillis();

    Reading(String address, String[] arguments) throws Exception {
      count = Integer.parseInt(arguments[3]);
      deadlineMs = System.currentTimeMillis() + (long) (Double.parseDouble(arguments[4]) * 1000);
      arrivals = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(arguments[5])));
      consumer.setNamesrvAddr(address);
      consumer.setConsumerGroup("read-" + ProcessHandle.current().pid());
      consumer.setInstanceName("read" + ProcessHandle.current().pid());
      consumer.setMessageModel(MessageModel.BROADCASTING);
      consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
      consumer.setPullBatchSize(BATCH);
      consumer.setConsumeMessageBatchMaxSize(BATCH);
      consumer.setPullThresholdForQueue(60_000);
      consumer.setPullThresholdSizeForQueue(1_000);
      consumer.setConsumeConcurrentlyMaxSpan(60_000);
      consumer.setPullTimeDelayMillsWhenException(100);
      consumer.setPollNameServerInterval(1_000);
      consumer.setHeartbeatBrokerInterval(1_000);
      consumer.subscribe(arguments[2], "*");
      consumer.registerMessageListener(
          (MessageListenerConcurrently) (messages, context) -> {
            note(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
          });
    }

    void run() throws Exception {
      double cpuBeforeS = cpuSeconds();
      consumer.start();
      TimeUnit.SECONDS.sleep(2);
      System.out.println("ready");
      while (!isDone()) {
        TimeUnit.MILLISECONDS.sleep(20);
      }
      double cpuS = cpuSeconds() - cpuBeforeS;
      synchronized (this) {
        arrivals.close();
      }
      System.out.printf("%.3f%n", cpuS);
    }

    private synchronized boolean isDone() {
      long nowMs = System.currentTimeMillis();
      return nowMs > deadlineMs || came >= count && nowMs > lastMs + QUIET_MS;
    }

    private synchronized void note(List<MessageExt> messages) {
      lastMs = System.currentTimeMillis();
      try {
        for (MessageExt message : messages) {
          arrivals.write(message.getBody(), 0, KEY_BYTES);
          arrivals.writeDouble(lastMs);
        }
      } catch (java.io.IOException closed) {
        return;
      }
      came += messages.size();
    }
  }
}
