"""Laboratory of crossspec_ros: measurements, training and trials; nothing on a robot imports it."""
