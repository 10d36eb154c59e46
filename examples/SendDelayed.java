import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Send a record that arrives in the topic `orders` ten seconds from now. */
public class SendDelayed {
    public static void main(String[] args) throws Exception {
        String bootstrap = args.length > 0 ? args[0] : "localhost:9092";
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap);
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<>(settings, text, text)) {
            var record = new ProducerRecord<>("timer.ingress", "k1", "hello from Java");
            record.headers()
                .add("timer-topic", "orders".getBytes(StandardCharsets.UTF_8))
                .add("timer-delay", "10s".getBytes(StandardCharsets.UTF_8));
            producer.send(record).get();
        }
    }
}
