package jakarta.annotation;

/** An annotation of Jakarta Annotations that generated clients use. */
public @interface Generated {
    String[] value();

    String date() default "";

    String comments() default "";
}
